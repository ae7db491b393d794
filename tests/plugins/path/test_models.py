"""Models from local files: folders, GGUF files, and what is no model."""

import hashlib
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from panelbench import Budget, Column, ColumnKind, DataError, PrivacyUnit, Schema  # noqa: E402 - the libraries are optional
from panelbench.testing import tiny_tables, tiny_visits  # noqa: E402 - likewise
from panelbench_path import models, shipped  # noqa: E402 - likewise
from panelbench_path.examples import Examples  # noqa: E402 - likewise
from panelbench_path.generate import Writer  # noqa: E402 - likewise
from panelbench_path.grammar import FORCED, Grammar  # noqa: E402 - likewise
from panelbench_path.path import Path  # noqa: E402 - likewise
from panelbench_path.serialise import Form  # noqa: E402 - likewise
from panelbench_path.vocabulary import Pieces  # noqa: E402 - likewise

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the libraries, at import
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # likewise
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PANELBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def grammar_of(schema, tokens):
    form = Form.of(schema)
    pieces = Pieces.of(form, tokens)
    models.check_text(form, pieces, tokens)
    return form, Grammar.of(pieces, min_rows=schema.min_rows)


@pytest.mark.parametrize("panel", [tiny_tables(), tiny_visits()], ids=["even", "uneven"])
def test_the_pieces_of_a_text_are_the_text(folder, panel):
    _, tokens = models.load(str(folder))
    form, grammar = grammar_of(panel.schema, tokens)
    for codes in form.encode(panel.train)[:5]:
        ids = grammar.pieces.ids[grammar.pieces.table(codes)]
        assert tokens.text(form, ids.tolist()) == form.text(codes)


def test_odd_names_and_values_are_written_by_a_tokenizer_of_bytes(folder):
    odd = Column(
        name='a, "b" is',
        kind=ColumnKind.CATEGORICAL,
        categories=("x, y is 2", "", "漢字", "x"),
        nullable=True,
    )
    large = Column(name="c", lower=-1e12, upper=1e12)
    schema = Schema(columns=(odd, large), unit=PrivacyUnit.USER, min_rows=1, max_rows=3)
    _, tokens = models.load(str(folder))
    form, grammar = grammar_of(schema, tokens)
    table = np.array([[0, 5], [1, 0], [4, 2000]])
    ids = grammar.pieces.ids[grammar.pieces.table(table)]
    assert tokens.text(form, ids.tolist()) == form.text(table)


def test_where_a_number_ends_is_a_choice_that_is_scored(folder):
    panel = tiny_tables()
    _, tokens = models.load(str(folder))
    form, grammar = grammar_of(panel.schema, tokens)
    count = form.first[1].codes
    ids, states, _ = grammar.line(2, [0, count["1"], 0])
    place = len(grammar.pieces.names[0]) + len(grammar.later[0][0].ids)
    place += len(grammar.pieces.names[1]) + len(grammar.later[1][count["1"]].ids)
    assert states[place] != FORCED  # "1," or "10" to "19"
    assert grammar.allowed[states[place], ids[place]]
    _, states, _ = grammar.line(2, [0, count["20"], 0])
    assert states[place + 1] == FORCED  # after "20" the comma is certain


def test_pruning_keeps_the_scores_of_what_stays(folder):
    whole, tokens = models.load(str(folder))
    pruned, _ = models.load(str(folder))
    form, grammar = grammar_of(tiny_tables().schema, tokens)
    models.prune(pruned, grammar.pieces.ids)
    ids = grammar.pieces.table(form.encode(tiny_tables().train)[0])
    kept = torch.from_numpy(grammar.pieces.ids)
    with torch.inference_mode():
        long = whole(input_ids=kept[ids][None]).logits[..., kept]
        short = pruned(input_ids=torch.tensor([ids])).logits
    assert torch.allclose(long, short, atol=1e-6)
    assert grammar.pieces.size < 80


@pytest.mark.parametrize("constrained", [True, False])
def test_tables_are_written_by_such_a_model(folder, constrained):
    panel = tiny_tables()
    model, tokens = models.load(str(folder))
    form, grammar = grammar_of(panel.schema, tokens)
    models.prune(model, grammar.pieces.ids)
    writer = Writer(
        model=model,
        form=form,
        tokens=tokens,
        grammar=grammar,
        context=150,
        constrained=constrained,
        temperature=1.0,
        top_p=0.95,
    )
    tables = writer.write(8, batch=5, rng=np.random.default_rng(0), say=lambda _: None)
    assert len(tables) == (8 if constrained else 0)  # an untrained model writes no row freely
    for table in tables:
        assert panel.schema.min_rows <= len(table) <= panel.schema.max_rows
        ids, states = Examples(
            tables=[table],
            grammar=grammar,
            start=0.0,
            pool=np.ones(12),
            target="rest",
            context=9_999,
        ).text(table, 0, 0)
        scored = np.array(states) != FORCED
        assert grammar.allowed[np.array(states)[scored], np.array(ids)[scored]].all()


def test_path_runs_on_such_a_model(folder):
    panel = tiny_tables()
    mechanism = Path(model=str(folder), steps=1, batch=6, tables=3, context=300)
    release = mechanism.release(
        panel.for_mechanism(), Budget.approximate_dp(2.0, 1e-5), rng=np.random.default_rng(0)
    )
    assert release.frame["user"].nunique() == 3


def test_a_gguf_file_is_converted_once_and_is_the_same_model(folder, gguf_file, cache):
    first, tokens = models.load(str(folder))
    second, others = models.load(str(gguf_file))
    made = sorted(cache.rglob("*.safetensors"))
    stamp = made[0].stat().st_mtime_ns
    third, _ = models.load(str(gguf_file))
    assert len(made) == 1
    assert made[0].stat().st_mtime_ns == stamp
    form = Form.of(tiny_tables().schema)
    assert tokens.header(form) == others.header(form)
    ids = torch.tensor([tokens.header(form)])
    with torch.inference_mode():
        one, two, three = (m(input_ids=ids).logits for m in (first, second, third))
    assert torch.allclose(one, two, atol=1e-5)
    assert torch.equal(two, three)


def test_a_gguf_file_cut_in_half_is_named(gguf_file, tmp_path):
    half = tmp_path / "half.gguf"
    half.write_bytes(gguf_file.read_bytes()[: gguf_file.stat().st_size // 2])
    with pytest.raises(DataError, match=r"half\.gguf' cannot be read .* copied whole"):
        models.load(str(half))


def test_a_folder_without_a_tokenizer_is_named(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"model' has no tokenizer \(tokenizer\.json\); copy"):
        models.load(str(tmp_path / "model"))


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(DataError, match=r"has no configuration"):
        models.load(str(tmp_path))


def test_the_digest_of_a_model_is_that_of_all_its_files(folder, gguf_file, tmp_path):
    assert models.digest(str(gguf_file)) == hashlib.sha256(gguf_file.read_bytes()).hexdigest()
    assert models.digest("") == hashlib.sha256(shipped.WEIGHTS.read_bytes()).hexdigest()
    other = shutil.copytree(folder, tmp_path / "model")
    assert models.digest(str(other)) == models.digest(str(folder))
    (other / "config.json").write_text((other / "config.json").read_text() + " ")
    assert models.digest(str(other)) != models.digest(str(folder))
    with pytest.raises(DataError, match=r"There is no model at '.*gone'"):
        models.digest(str(tmp_path / "gone"))


def test_a_model_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"There is no model at '.*gone'"):
        models.load(str(tmp_path / "gone"))


def test_a_file_that_is_no_gguf_is_named(folder):
    with pytest.raises(DataError, match=r"neither a folder nor a GGUF file"):
        models.load(str(folder / "config.json"))


def test_weights_that_are_no_weights_are_named(tmp_path):
    (tmp_path / "text.npz").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"text\.npz' does not hold the weights"):
        shipped.load(tmp_path / "text.npz")


def test_a_row_that_fills_the_context_is_named(folder):
    panel = tiny_tables()
    mechanism = Path(model=str(folder), steps=1, context=100)
    with pytest.raises(DataError, match=r"more than half of the context of 100; give context ="):
        mechanism.release(
            panel.for_mechanism(), Budget.approximate_dp(2.0, 1e-5), rng=np.random.default_rng(0)
        )


def test_a_model_that_does_not_fit_into_memory_is_told(monkeypatch):
    def full(*_args, **_more):
        raise MemoryError

    monkeypatch.setattr(models, "load", full)
    panel = tiny_tables()
    with pytest.raises(DataError, match=r"does not fit into memory with 32 users at once"):
        Path(steps=1).release(
            panel.for_mechanism(), Budget.approximate_dp(2.0, 1e-5), rng=np.random.default_rng(0)
        )
