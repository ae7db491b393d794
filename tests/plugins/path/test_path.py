"""PATH: what it spends, and that nothing else of the private data reaches what is public."""

import dataclasses
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from panelbench import (  # noqa: E402 - the libraries are optional
    Budget,
    DataError,
    Established,
    NeighboringRelation,
    PrivacyUnit,
    SampledGaussianEvent,
)
from panelbench.accounting import excess, settle  # noqa: E402 - likewise
from panelbench.testing import tiny_tables, tiny_visits  # noqa: E402 - likewise
from panelbench_path import models, shipped, tuning  # noqa: E402 - likewise
from panelbench_path import path as module  # noqa: E402 - likewise
from panelbench_path.examples import Examples  # noqa: E402 - likewise
from panelbench_path.grammar import Grammar  # noqa: E402 - likewise
from panelbench_path.path import Path, PathNonprivate  # noqa: E402 - likewise
from panelbench_path.pretrain_text import DEFAULTS, pretrain  # noqa: E402 - likewise
from panelbench_path.reserved import Reserved  # noqa: E402 - likewise
from panelbench_path.serialise import Form  # noqa: E402 - likewise
from panelbench_path.vocabulary import Pieces  # noqa: E402 - likewise

RELATIONS = pytest.mark.parametrize("relation", list(NeighboringRelation))
BUDGET = Budget.approximate_dp(2.0, 1e-5)
SMALL = Path(steps=2, batch=12.0, sampling=0.5, tables=6, context=120)


def release(mechanism, panel=None, budget=BUDGET, seed=0):
    data = (panel or tiny_tables()).for_mechanism()
    return mechanism.release(data, budget, rng=np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("relation", "selection"),
    [
        (NeighboringRelation.ADD_OR_REMOVE_ONE, 0.0),
        (NeighboringRelation.ADD_OR_REMOVE_ONE, 0.5),
        (NeighboringRelation.REPLACE_ONE, 0.07),
    ],
)
def test_all_pieces_settle_to_the_budget_together(relation, selection):
    budget = dataclasses.replace(BUDGET, relation=relation)
    mechanism = Path(selection_share=selection)
    noise = mechanism.noise(tiny_tables().schema, budget)
    guarantee = module.Guarantee(
        established=Established.SETTLED,
        unit=PrivacyUnit.USER,
        relation=relation,
        ledger=noise.ledger,
    )
    assert len(noise.ledger) == (3 if selection else 2)
    assert excess(guarantee, budget, unit=PrivacyUnit.USER) is None
    assert settle(guarantee, delta=1e-5, alpha=2.0).epsilon == pytest.approx(2.0, rel=1e-3)


def test_joint_accounting_needs_less_noise_than_adding_epsilons():
    schema = tiny_tables().schema
    joint = Path().noise(schema, BUDGET).gradients
    apart = Path(selection_share=0.0).noise(schema, Budget.approximate_dp(1.5, 0.75e-5)).gradients
    assert joint < apart


@RELATIONS
def test_noise_fits_the_sensitivity_of_the_relation(relation):
    noise = Path().noise(tiny_tables().schema, dataclasses.replace(BUDGET, relation=relation))
    factor = 2 if relation is NeighboringRelation.REPLACE_ONE else 1
    assert noise.ledger[0].l2_sensitivity ** 2 == pytest.approx(factor)
    assert noise.ledger[1].l2_sensitivity ** 2 == pytest.approx(10 * factor)


def test_the_ledger_is_what_training_did(monkeypatch):
    seen = []

    def watched(*args, **more):
        seen.append(args[4])
        return train(*args, **more)

    train = tuning.train
    monkeypatch.setattr(tuning, "train", watched)
    found = release(SMALL)
    (plan,) = seen
    assert plan.event() == found.guarantee.ledger[-1]
    assert isinstance(plan.event(), SampledGaussianEvent)
    assert plan.sampling == pytest.approx(12 / 60)
    assert plan.users == 60
    assert plan.denominator == found.info["estimated_users"] != 60
    assert found.frame["user"].nunique() == 6


@pytest.mark.parametrize("within", [False, True])
def test_one_user_more_changes_that_users_example_alone(within):
    panel = tiny_tables()
    form = Form.of(panel.schema)
    tables = form.encode(panel.train)
    grammar = Grammar.of(Pieces.of(form, Reserved()), min_rows=4)
    other = [tables[7], *tables[1:]]
    users = np.arange(20)
    mine, others = (
        Examples(
            tables=own,
            grammar=grammar,
            start=0.1,
            pool=np.ones(12),
            target="row",
            context=400,
            within=within,
        ).drawn(users, np.random.default_rng(0))
        for own in (tables, other)
    )
    assert mine[1:] == others[1:]
    assert mine[0] != others[0]


def test_test_users_neither_train_nor_vote():
    panel = tiny_tables()
    other = dataclasses.replace(panel, test=panel.test[panel.test["user"] > 100])
    frames = [
        SMALL.release(data, BUDGET, rng=np.random.default_rng(0)).frame for data in (panel, other)
    ]
    assert frames[0].equals(frames[1])


def test_every_voter_is_a_user_of_train(monkeypatch):
    seen = []

    def watched(real, candidates, votes):
        seen.append((len(real), len(candidates), votes))
        return count(real, candidates, votes)

    count = module.votes_of
    monkeypatch.setattr(module, "votes_of", watched)
    release(SMALL)
    assert seen == [(60, 12, 10)]


def test_a_release_lies_within_the_public_schema():
    panel = tiny_visits()
    found = release(SMALL, panel)
    for column in panel.schema.numeric:
        assert found.frame[column.name].between(column.lower, column.upper).all()
    assert json.dumps(found.info)


def test_a_release_names_its_model_and_takes_no_other_than_was_asked_for():
    found = release(SMALL)
    assert found.info["model_sha256"] == models.digest("")
    asked = dataclasses.replace(SMALL, digest=models.digest(""))
    assert release(asked).info["model_sha256"] == models.digest("")
    other = dataclasses.replace(SMALL, digest="0" * 64)
    with pytest.raises(DataError, match=r"text\.npz' has the SHA-256 [0-9a-f]{64}, expected 0000"):
        release(other)


def test_only_budgets_that_can_be_settled_are_supported():
    schema = tiny_tables().schema
    replace = NeighboringRelation.REPLACE_ONE
    assert Path().supports(schema, BUDGET) is None
    assert Path().supports(schema, Budget.renyi_dp(8.0, 1.0)) is None
    assert "replace-one" in Path().supports(schema, Budget.renyi_dp(8.0, 1.0, relation=replace))
    assert "no zCDP bound" in Path().supports(schema, Budget.zero_concentrated_dp(0.5))
    assert "limited" in Path().supports(schema, Budget.unlimited())
    assert PathNonprivate().supports(schema, Budget.unlimited()) is None


def test_a_schema_without_bounds_is_refused():
    schema = tiny_tables().schema
    open_ended = dataclasses.replace(schema.columns[0], lower=None)
    reason = Path().supports(dataclasses.replace(schema, columns=(open_ended,)), BUDGET)
    assert reason == "needs public bounds for ['level']"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target", "all"),
        ("steps", 0),
        ("sampling", 1.5),
        ("clip", 0.0),
        ("top_p", 0.0),
        ("selection_share", 0.95),
        ("tables", 0),
        ("choice", "best"),
        ("dtype", "float16"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_named(field, value):
    with pytest.raises(ValueError, match=field):
        Path(**{field: value})


def test_the_ceiling_has_no_guarantee():
    found = release(
        PathNonprivate(steps=1, batch=5.0, tables=3, context=120), budget=Budget.unlimited()
    )
    assert found.guarantee.established is Established.NONE
    assert found.info["estimated_users"] == 60


def test_the_shipped_weights_were_made_with_the_scripts_defaults():
    assert shipped.settings() == DEFAULTS
    assert shipped.WEIGHTS.stat().st_size < 3_000_000


def test_training_the_shipped_model_can_be_repeated():
    runs = [pretrain(**{**DEFAULTS, "steps": 2, "tables": 2}, say=lambda _: None) for _ in range(2)]
    first, second = (dict(run.named_parameters()) for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert sum(p.numel() for p in runs[0].parameters()) == shipped.load().num_parameters()
