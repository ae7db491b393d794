"""What the model is trained on, token by token; an example is of one user alone."""

import dataclasses
import hashlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from panelbench import Column  # noqa: E402 - likewise
from panelbench.testing import tiny_tables, tiny_visits  # noqa: E402 - the libraries are optional
from panelbench_path import models, reserved, shipped  # noqa: E402 - likewise
from panelbench_path.examples import Examples, pool_of_lengths  # noqa: E402 - likewise
from panelbench_path.grammar import FORCED, Grammar  # noqa: E402 - likewise
from panelbench_path.likelihood import Texts, losses  # noqa: E402 - likewise
from panelbench_path.pretrain_text import DEFAULTS  # noqa: E402 - likewise
from panelbench_path.reserved import Reserved  # noqa: E402 - likewise
from panelbench_path.serialise import Form  # noqa: E402 - likewise
from panelbench_path.textprior import population  # noqa: E402 - likewise
from panelbench_path.vocabulary import Pieces  # noqa: E402 - likewise

PANELS = pytest.mark.parametrize("panel", [tiny_tables(), tiny_visits()], ids=["even", "uneven"])


def parts(panel):
    form = Form.of(panel.schema)
    pieces = Pieces.of(form, Reserved())
    return form, Grammar.of(pieces, min_rows=panel.schema.min_rows)


def examples(panel, **more):
    form, grammar = parts(panel)
    options = {"start": 0.1, "pool": np.ones(12), "target": "row", "context": 400}
    return Examples(tables=form.encode(panel.train), grammar=grammar, **{**options, **more})


def told(grammar, form, ids):
    return Reserved().text(form, grammar.pieces.ids[ids].tolist())


def model_for(grammar):
    model = shipped.fresh(0)
    models.prune(model, grammar.pieces.ids)
    return model


@PANELS
def test_tokens_are_the_text(panel):
    form, grammar = parts(panel)
    for codes in form.encode(panel.train)[:10]:
        assert told(grammar, form, grammar.pieces.table(codes)) == form.text(codes)


def test_a_row_of_five_columns_takes_at_most_16_tokens():
    columns = tuple(Column(name=f"c{n}", lower=0.0, upper=1.0, nullable=True) for n in range(5))
    schema = dataclasses.replace(tiny_tables().schema, columns=columns)
    pieces = Pieces.of(Form.of(schema), Reserved())
    for code in (0, 1000, 1001):  # the smallest, the largest, missing
        assert len(pieces.rows[1]) + len(pieces.line(2, [code] * 5)) == 16


@PANELS
@pytest.mark.parametrize("split", [0, 1, 4])
def test_the_target_is_the_next_row_in_full_and_nothing_else_is_scored(panel, split):
    form, grammar = parts(panel)
    table = examples(panel).tables[0]
    ids, states = examples(panel).text(table, split, 300)
    text = form.text(table).split("\n")
    assert told(grammar, form, ids).split("\n") == text[: split + 2]
    scored = [n for n, state in enumerate(states) if state != FORCED]
    target = len(
        told_ids := ids[: len(ids) - len(grammar.line(split + 1, table[split].tolist())[0])]
    )
    assert min(scored) >= target - 1
    assert all(grammar.allowed[states[n], ids[n]] for n in scored)
    assert told(grammar, form, told_ids).split("\n")[-1] == f"[Row {split + 1}]:"


def test_the_end_is_the_target_after_the_last_row_and_can_be_learnt():
    panel = tiny_tables()
    form, grammar = parts(panel)
    table = next(t for t in examples(panel).tables if 4 < len(t) < 12)
    ids, states = examples(panel).text(table, len(table), 300)
    assert told(grammar, form, ids) == form.text(table)
    assert states[-1] == grammar.decisions[len(table)] != FORCED


@pytest.mark.parametrize("keep", [0, 30, 45])
def test_a_long_table_loses_its_first_rows_and_never_its_target(keep):
    panel = tiny_tables()
    form, grammar = parts(panel)
    table = max(examples(panel).tables, key=len)
    ids, states = examples(panel).text(table, 9, keep)
    lines = told(grammar, form, [*ids]).split("\n")
    assert len(ids) <= len(grammar.pieces.header) + keep + 8
    assert states[-1] != FORCED
    assert len(lines) == 2 + keep // 8


def test_the_rest_is_all_that_remains():
    panel = tiny_tables()
    form, grammar = parts(panel)
    table = examples(panel).tables[0]
    ids, _ = examples(panel, target="rest").text(table, 2, 300)
    assert told(grammar, form, ids) == form.text(table)


def test_a_split_point_is_drawn_anew_each_time_and_within_the_users_own_table():
    made = examples(tiny_tables(), start=0.1)
    users = np.arange(len(made.tables))
    rng = np.random.default_rng(0)
    drawn = np.array([made.splits(users, rng) for _ in range(300)])
    rows = np.array([len(table) for table in made.tables])
    assert (drawn <= rows).all()
    assert (drawn.max(axis=0) == rows).all()
    assert len({tuple(row) for row in drawn}) == 300


def test_the_chance_of_a_split_point_does_not_depend_on_the_length():
    made = examples(tiny_tables(), start=0.1)
    rows = np.array([len(table) for table in made.tables])
    rng = np.random.default_rng(0)
    drawn = np.array([made.splits(np.arange(len(rows)), rng) for _ in range(2000)])
    short, long = (float((drawn[:, rows == n] == 4).mean()) for n in (5, 12))
    assert short == pytest.approx(0.9 / 12, abs=0.02)
    assert long == pytest.approx(0.9 / 12, abs=0.02)


def test_points_within_a_table_are_before_one_of_its_rows_and_weighed_by_the_pool():
    made = examples(tiny_tables(), start=0.1, within=True, pool=np.array([3.0, *[1.0] * 11]))
    rows = np.array([len(table) for table in made.tables])
    rng = np.random.default_rng(0)
    drawn = np.array([made.splits(np.arange(len(rows)), rng) for _ in range(2000)])
    assert (drawn.max(axis=0) == rows - 1).all()
    assert float((drawn == 0).mean()) == pytest.approx(0.1, abs=0.02)
    for length in (5, 12):
        own = drawn[:, rows == length]
        assert float((own == 1).mean()) == pytest.approx(0.9 * 3 / (length + 1), abs=0.02)
        assert float((own == 3).mean()) == pytest.approx(0.9 / (length + 1), abs=0.02)


def test_points_within_a_table_of_one_row_or_without_a_pool_are_its_start():
    alone = examples(tiny_tables(), within=True)
    alone = dataclasses.replace(alone, tables=[table[:1] for table in alone.tables])
    none = examples(tiny_tables(), within=True, pool=np.zeros(12))
    for made in (alone, none):
        assert not made.splits(np.arange(len(made.tables)), np.random.default_rng(0)).any()


def test_batches_hold_every_user_once_and_texts_of_like_length():
    made = examples(tiny_tables())
    users = np.arange(len(made.tables))
    alone = made.drawn(users, np.random.default_rng(0))
    batches = list(made.batches_of(users, 7, np.random.default_rng(0)))
    assert max(len(batch.ids) for batch in batches) == 7
    texts = [
        (ids.tolist()[: len(text)], text)
        for batch, some in zip(
            batches,
            (sorted((t for t, _ in alone), key=len)[n : n + 7] for n in range(0, len(alone), 7)),
            strict=True,
        )
        for ids, text in zip(batch.ids, some, strict=True)
    ]
    assert len(texts) == len(users)
    assert all(padded == text for padded, text in texts)


def test_the_pool_comes_from_the_released_histogram():
    assert pool_of_lengths(np.array([2.0, -5.0, 1.0]), least=2, most=4).tolist() == [3, 3, 1, 1]
    assert pool_of_lengths(np.array([-1.0, -5.0]), least=1, most=2).tolist() == [1, 1]


def test_the_loss_of_a_user_does_not_depend_on_who_else_is_in_the_batch():
    made = examples(tiny_tables())
    model = model_for(made.grammar)
    (texts,) = made.batches_of(np.arange(8), 8, np.random.default_rng(0))
    with torch.inference_mode():
        together = losses(model, texts)
        for user in range(8):
            length = int((texts.ids[user] != 0).nonzero().max()) + 1
            alone = Texts(
                ids=texts.ids[user : user + 1, :length],
                states=texts.states[user : user + 1, :length],
                allowed=texts.allowed,
            )
            assert losses(model, alone).item() == pytest.approx(together[user].item(), rel=1e-5)


def test_a_text_without_a_scored_token_costs_nothing():
    made = examples(tiny_tables())
    (texts,) = made.batches_of(np.arange(2), 2, np.random.default_rng(0))
    none = Texts(ids=texts.ids, states=torch.full_like(texts.states, -1), allowed=texts.allowed)
    assert losses(model_for(made.grammar), none).tolist() == [0.0, 0.0]


def test_pruning_the_vocabulary_changes_no_score_of_a_token_that_stays():
    panel = tiny_tables()
    _, grammar = parts(panel)
    ids = grammar.pieces.table(examples(panel).tables[0])
    whole, pruned = shipped.fresh(0), model_for(grammar)
    with torch.inference_mode():
        kept = torch.from_numpy(grammar.pieces.ids)
        long = whole(input_ids=kept[ids][None]).logits[0][:, kept]
        short = pruned(input_ids=torch.tensor([ids])).logits[0]
    assert torch.equal(long, short)
    assert pruned.num_parameters() < whole.num_parameters()


def test_the_prior_is_the_one_that_the_shipped_weights_were_made_from():
    rng, digest = np.random.default_rng(DEFAULTS["seed"]), hashlib.sha256()
    for _ in range(8):
        digest.update(population(rng, tables=DEFAULTS["tables"]).ids.tobytes())
    assert digest.hexdigest()[:16] == "2f4571d55f42c3ee"


def test_made_up_tables_are_tokens_as_the_grammar_has_them():
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = population(rng, tables=4)
        scored = drawn.states >= 0
        assert drawn.allowed[drawn.states[scored], drawn.ids[scored]].all()
        assert (drawn.allowed[drawn.states[scored]].sum(axis=1) > 1).all()
        assert (drawn.ids[:, 0] == reserved.START).all()
        assert drawn.ids.max() < reserved.SIZE
