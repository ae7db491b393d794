"""A14, second half: an audit contradicts claims that do not hold, and the board says so."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from panelbench.accounting import settle
from panelbench.audit import Game, audit, verdict
from panelbench.audits import names_of
from panelbench.loader import Plugin, load
from panelbench.privacy import Budget, NeighboringRelation
from panelbench.record import Record

PAIRS = Game(method="pairs", releases=500)
FIXTURES = Plugin(
    name="fixtures-plugin",
    target=str(Path(__file__).parents[1] / "fixtures_plugin.py"),
    is_file=True,
)


def judged(name, relation, game=PAIRS, **params):
    mechanism = load(FIXTURES)["mechanism", name](**params)
    budget = Budget.approximate_dp(1.0, 1e-5, relation=relation)
    guarantee, found = audit(mechanism, budget, game, rng=np.random.default_rng(5))
    return verdict(found, settle(guarantee, delta=1e-5, alpha=2.0)), found


@pytest.fixture(params=list(NeighboringRelation), ids=str)
def relation(request):
    return request.param


def test_a14_the_audit_flags_private_rows_in_a_release(relation):
    says, found = judged("fx-leak", relation, Game(method="pairs", releases=100))
    assert says.epsilon_lower > 1
    assert "the guarantee says" in says.reason
    assert found["epsilon"]["false_hits"] == 0


def test_a14_the_audit_flags_a_laplace_mechanism_with_half_its_noise():
    says, _ = judged("fx-laplace", NeighboringRelation.ADD_OR_REMOVE_ONE, noise=0.5)
    assert 1 < says.epsilon_lower <= 2
    assert says.reason.startswith("An audit shows epsilon > 1.")


def test_a14_the_audit_does_not_flag_the_laplace_mechanism_with_all_its_noise():
    says, _ = judged("fx-laplace", NeighboringRelation.REPLACE_ONE)
    assert 0 < says.epsilon_lower <= 1
    assert says.reason == ""


def test_a14_sensor_streams_with_half_the_noise_are_flagged_and_with_all_of_it_not(relation):
    for noise in (0.5, 1.0):
        says, found = judged("fx-stream", relation, Game(releases=10_000), noise=noise)
        assert bool(says.reason) == (noise == 0.5)
        assert found["releases"] == 20_000
        assert says.epsilon_lower > 0.5


def test_a14_canaries_in_one_run_flag_private_rows(relation):
    says, found = judged("fx-leak", relation, Game(method="canaries", canaries=1000))
    assert found["releases"] == 1
    assert says.epsilon_lower > 3


def test_a14_canaries_are_split_where_a_mechanism_takes_few_categories():
    class Few(load(FIXTURES)["mechanism", "fx-leak"]):
        def supports(self, schema, budget):
            most = max((len(c.categories) for c in schema.categorical), default=0)
            return f"needs at most 64 categories, got {most}" if most > 64 else None

    budget = Budget.approximate_dp(1.0, 1e-5, relation=NeighboringRelation.REPLACE_ONE)
    game = Game(method="canaries", canaries=1000)
    _, found = audit(Few(), budget, game, rng=np.random.default_rng(5))
    assert found["releases"] == 17
    assert max(attempt["correct"] for attempt in found["attempts"]) == 300


def test_a14_a_contradicted_entry_is_quarantined_with_its_reason_and_the_others_get_the_number(
    bench,
):
    half = ("fx-laplace", "{ noise = 0.5 }")
    grid = bench.grid(repeats=2, mechanisms=["fx-laplace", half], budgets="epsilon = [1, 3]")
    bench.run(grid)
    before = bench.board()
    games = ("--method", "pairs", "--releases", 500, "--workers", 1)
    done = bench("audit", grid, "--store", bench.store, *games, rc=3)
    assert done.stdout.count("CONTRADICTED") == 1
    assert done.stdout.count("no objection") == 1
    assert 'fx-laplace with {"noise":0.5}' in done.stdout
    assert "2/2 audits done" in done.stderr
    shown = bench("leaderboard", grid, "--store", bench.store).stdout
    assert "An audit shows epsilon > 1." in shown
    rows = list(csv.DictReader((bench.store / "fx.csv").read_text().splitlines()))
    bad = [row for row in rows if '"noise":0.5' in row["params"]]
    good = [row for row in rows if '"noise":1.0' in row["params"]]
    assert {row["section"] for row in bad} == {"quarantined"}
    assert {row["rank"] for row in bad} == {""}
    assert {row["section"] for row in good} == {"private-settled"}
    assert {row["rank"] for row in good} == {"1"}
    at = {row["epsilon"]: row["audit_epsilon_lower"] for row in good}
    assert 0 < float(at["1"]) <= 1
    assert at["3"] == ""  # not audited at that budget
    assert bench.board() != before

    public = bench.folder / "public"
    bench("publish", grid, "--store", bench.store, "--to", public)
    assert (public / "fx.csv").read_text() == (bench.store / "fx.csv").read_text()
    assert "All is as it says." in bench("verify", public).stdout
    bench("leaderboard", public / "fx.jsonl.gz", "--csv", bench.folder / "again.csv")
    assert (bench.folder / "again.csv").read_text() == (public / "fx.csv").read_text()
    again = bench("audit", grid, "--store", bench.store, *games, "--json", rc=3)
    assert len(bench.records("audits")) == 2  # kept, not made again
    assert len(json.loads(again.stdout)) == 2


def test_a14_an_audit_of_other_code_says_nothing_about_a_row(bench):
    bench.run(grid := bench.grid(mechanisms=["fx-leak"]))
    bench("audit", grid, "--store", bench.store, "--method", "pairs", "--releases", 50, rc=3)
    assert '"quarantined"' in _section(bench, grid)
    (path,) = (bench.store / "audits").iterdir()
    raw = json.loads(path.read_text())
    raw["subject"]["hashes"]["code"] = "another"
    path.write_text(Record.from_json(json.dumps(raw)).to_json())
    assert '"private-settled"' in _section(bench, grid)
    assert "has the key of something else" in bench("verify", bench.store, rc=1).stdout


def _section(bench, grid):
    bench("leaderboard", grid, "--store", bench.store)
    return " ".join(bench.board())


def test_a14_audits_published_by_themselves_are_verified_and_an_altered_count_is_named(bench):
    games = ("--releases", 50, "--method", "pairs", "--relation", "replace-one")
    to = bench.folder / "public"
    bench("audit", "fixtures-plugin/fx-leak", "--store", bench.store, *games, "--to", to, rc=3)
    (row,) = csv.DictReader((to / "audit.csv").read_text().splitlines())
    assert row["mechanism"] == "fixtures-plugin/fx-leak"
    assert row["contradiction"]
    assert "All is as it says." in bench("verify", to).stdout
    bench("report", to / "audit.jsonl.gz", "--html", to / "audit.html")
    lines = gzip.decompress((to / "audit.jsonl.gz").read_bytes()).decode().splitlines()
    raw = json.loads(lines[1])
    raw["info"]["found"]["epsilon"]["hits"] = 20
    raw.pop("digest")
    altered = "\n".join([lines[0], json.dumps(raw)])
    (to / "audit.jsonl.gz").write_bytes(gzip.compress(altered.encode()))
    assert "its counts give epsilon" in bench("verify", to, rc=1).stdout


def test_a14_what_claims_nothing_or_too_much_is_not_audited(bench):
    names = ("fixtures-plugin/fx-nonprivate", "fixtures-plugin/fx-overspend")
    common = ("--releases", 50, "--method", "pairs", "--relation", "replace-one")
    done = bench("audit", *names, "--store", bench.store, *common, rc=3)
    assert "It claims no privacy" in done.stdout
    assert "invalid" in done.stdout
    assert "the budget allows 1" in done.stdout


def test_a14_an_audit_that_does_not_end_is_stopped_and_recorded(bench):
    done = bench(
        *("audit", "fixtures-plugin/fx-sleep", "--store", bench.store, "--limit", 1),
        *("--relation", "replace-one"),
        rc=3,
    )
    assert "timeout" in done.stdout
    (record,) = bench.records("audits").values()
    assert record["status"] == "timeout"


def test_a14_audits_that_differ_in_a_parameter_are_told_apart():
    same = {"name": "a/b", "params": {"k": 1, "draws": 20}}
    other = {"name": "a/b", "params": {"k": 2, "draws": 20}}
    alone = {"name": "a/c", "params": {"k": 1}}
    subjects = [(same, "replace-one"), (other, "replace-one"), (alone, "add-or-remove-one")]
    assert names_of(subjects) == [
        'a/b with {"k":1} under replace-one',
        'a/b with {"k":2} under replace-one',
        "a/c under add-or-remove-one",
    ]
