"""Writing tables: several texts at once are as each by itself, and drawing follows the model."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from panelbench.testing import tiny_tables, tiny_visits  # noqa: E402 - the libraries are optional
from panelbench_path import models, shipped  # noqa: E402 - likewise
from panelbench_path.examples import drawn_lengths  # noqa: E402 - likewise
from panelbench_path.generate import Writer  # noqa: E402 - likewise
from panelbench_path.grammar import FORCED, Grammar  # noqa: E402 - likewise
from panelbench_path.reader import Reader, drawn  # noqa: E402 - likewise
from panelbench_path.reserved import Reserved  # noqa: E402 - likewise
from panelbench_path.serialise import Form  # noqa: E402 - likewise
from panelbench_path.vocabulary import Pieces  # noqa: E402 - likewise


def writer_for(panel, **more):
    form, tokens = Form.of(panel.schema), Reserved()
    pieces = Pieces.of(form, tokens)
    model = shipped.fresh(0)
    models.prune(model, pieces.ids)
    options = {"context": 400, "constrained": True, "temperature": 1.0, "top_p": 1.0}
    return Writer(
        model=model,
        form=form,
        tokens=tokens,
        grammar=Grammar.of(pieces, min_rows=panel.schema.min_rows),
        **{**options, **more},
    )


def write(writer, count=12, batch=12, seed=0):
    rng = np.random.default_rng(seed)
    return writer.write(count, batch=batch, rng=rng, say=lambda _: None)


def test_texts_of_different_lengths_read_together_score_as_each_alone():
    model = shipped.fresh(0)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 200, n).tolist() for n in (3, 9, 1, 6)]
    more = [[5, 6], [], [7], [8, 9, 10]]
    with torch.inference_mode():
        reader = Reader(model, 4)
        first, second = reader.feed(texts), reader.feed(more)
        for n, (text, added) in enumerate(zip(texts, more, strict=True)):
            alone = model(input_ids=torch.tensor([text + added])).logits[0]
            assert torch.allclose(first[n], alone[len(text) - 1], atol=1e-5)
            if added:
                assert torch.allclose(second[n], alone[-1], atol=1e-5)


def test_a_text_that_is_dropped_leaves_the_others_as_they_were():
    model = shipped.fresh(0)
    with torch.inference_mode():
        reader = Reader(model, 3)
        reader.feed([[1, 2], [3], [4, 5, 6]])
        reader.keep(np.array([0, 2]))
        scores = reader.feed([[7], [8]])
        alone = model(input_ids=torch.tensor([[4, 5, 6, 8]])).logits[0, -1]
    assert torch.allclose(scores[1], alone, atol=1e-5)


def test_tokens_are_drawn_as_often_as_the_model_says():
    rng = np.random.default_rng(0)
    scores = torch.log(torch.tensor([[0.1, 0.2, 0.3, 0.4]])).repeat(40_000, 1)
    allowed = np.ones((40_000, 4), dtype=bool)
    allowed[:, 3] = False
    picked = drawn(scores, allowed, rng, temperature=1.0, top_p=1.0)
    assert np.allclose(
        np.bincount(picked, minlength=4) / 40_000, [1 / 6, 2 / 6, 0.5, 0], atol=0.013
    )
    picked = drawn(scores, allowed, rng, temperature=1.0, top_p=0.6)
    assert np.allclose(np.bincount(picked, minlength=4) / 40_000, [0, 0.4, 0.6, 0], atol=0.013)
    picked = drawn(scores, None, rng, temperature=0.5, top_p=1.0)
    expected = np.array([1, 4, 9, 16]) / 30
    assert np.allclose(np.bincount(picked, minlength=4) / 40_000, expected, atol=0.013)


@pytest.mark.parametrize("panel", [tiny_tables(), tiny_visits()], ids=["even", "uneven"])
@pytest.mark.parametrize("context", [400, 40])
def test_under_the_grammar_every_table_is_legal_even_of_an_untrained_model(panel, context):
    writer = writer_for(panel, context=context)
    tables = write(writer)
    assert len(tables) == 12
    for table in tables:
        assert panel.schema.min_rows <= len(table) <= panel.schema.max_rows
        for number, row in enumerate(table.tolist(), 1):
            for code, quantity in zip(row, writer.form.row(number), strict=True):
                assert 0 <= code < len(quantity.texts)


def test_lengths_are_drawn_by_the_model():
    panel = tiny_tables()
    writer = writer_for(panel)
    state = writer.grammar.decisions[4]
    assert writer.grammar.allowed[state].sum() == 2
    assert writer.grammar.decisions[3] == writer.grammar.decisions[12] == FORCED
    assert len({len(table) for table in write(writer, count=40, batch=40)}) > 3


@pytest.mark.parametrize("panel", [tiny_tables(), tiny_visits()], ids=["even", "uneven"])
@pytest.mark.parametrize("context", [400, 40])
def test_tables_end_where_they_are_told_to(panel, context):
    writer = writer_for(panel, context=context)
    least, most = panel.schema.min_rows, panel.schema.max_rows
    lengths = np.random.default_rng(1).integers(least, most + 1, 12)
    rng = np.random.default_rng(0)
    tables = writer.write(12, batch=5, rng=rng, say=lambda _: None, lengths=lengths)
    assert sorted(map(len, tables)) == sorted(lengths)
    for table in tables:
        for number, row in enumerate(table.tolist(), 1):
            for code, quantity in zip(row, writer.form.row(number), strict=True):
                assert 0 <= code < len(quantity.texts)


def test_lengths_follow_the_released_histogram_without_the_bins_that_noise_made():
    rng = np.random.default_rng(0)
    noisy = np.array([100.0, 9.0, -8.0, 300.0])
    lengths = drawn_lengths(noisy, 10.0, least=2, count=4000, rng=rng)
    shares = np.bincount(lengths, minlength=6) / 4000
    np.testing.assert_allclose(shares, [0, 0, 0.25, 0, 0, 0.75], atol=0.03)
    assert set(drawn_lengths(np.array([-1.0, -2.0]), 10.0, least=2, count=99, rng=rng)) == {2, 3}


def test_a_batch_gives_what_the_seed_says():
    writer = writer_for(tiny_tables())
    first, second = write(writer, count=7, batch=3), write(writer, count=7, batch=3)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_free_rows_are_parsed_and_a_table_ends_at_the_first_that_cannot_be_read():
    panel = tiny_tables()
    writer = writer_for(panel, constrained=False)
    lines = iter(
        [
            ["\n[Row 1]: level is 1, count is 2, state is calm\n[Row", "\n[Row 1]: nothing"],
            ["\n[Row 9]: state is busy, level is 7\n"],
            ["\n[Row 1]: 1, 2, full"],
            ["\n[Row 4]: level is 2, count is , state is calm"],
            ["\n[End]"],
        ]
    )
    fake = dataclasses.replace(writer)
    object.__setattr__(fake, "_lines", lambda _prompts, _number, _rng: next(lines))
    (table,) = write(fake, count=2)
    assert writer.form.text(table).split("\n")[1:] == [
        "[Row 1]: level is 1.00, count is 2, state is calm",
        "[Row 2]: level is 7.00, count is , state is busy",
        "[Row 3]: level is 1.00, count is 2, state is full",
        "[Row 4]: level is 2.00, count is , state is calm",
        "[End]",
    ]


def test_free_writing_gives_back_what_was_written_and_no_row_of_the_prompt():
    writer = writer_for(tiny_tables(), constrained=False)
    pieces = writer.grammar.pieces
    rows = [[5, 3, 1], [7, 2, 0]]
    prompts = [list(pieces.header), writer._history(rows, 400)]
    with torch.inference_mode():
        lines = writer._lines(prompts, 1, np.random.default_rng(0))
    assert all(writer.form.line(n, np.array(row)) not in lines[1] for n, row in enumerate(rows, 1))
