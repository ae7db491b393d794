"""A14, first half: a claim that does not hold is no result."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a14_a_release_that_overspends_is_invalid_and_has_no_board_row(bench):
    done = bench.run(bench.grid(repeats=2, mechanisms=["fx-ok", "fx-overspend"]), rc=3)
    for record in bench.by_mechanism()["fx-overspend"]:
        assert record["status"] == "invalid"
        assert record["release"] == ""
        assert "epsilon" in record["error"]
    assert not any("fx-overspend" in line for line in bench.board())
    assert "Quarantined: fixtures-plugin/fx-overspend" in done.stdout


def test_a14_the_record_shows_what_the_ledger_settles_to_beside_the_budget(bench):
    bench.run(bench.grid(mechanisms=["fx-overspend"]), rc=3)
    (record,) = bench.records().values()
    assert record["guarantee"]["figures"]["epsilon"] > 1.9
    assert record["budget_figures"]["epsilon"] == 1.0


def test_a14_a_ledger_under_another_relation_is_refused(bench):
    bench.run(bench.grid(mechanisms=["fx-other-relation"]), rc=3)
    (record,) = bench.records().values()
    assert record["status"] == "invalid"
    assert "replace-one" in record["error"]
    assert "add-or-remove-one" in record["error"]


def test_a14_a_reference_that_is_not_private_is_shown_unranked(bench):
    bench.run(bench.grid(mechanisms=["fx-ok", "fx-nonprivate"], repeats=2))
    line = next(line for line in bench.board() if "fx-nonprivate" in line)
    assert '"section": "non-private-reference"' in line
    assert '"rank": ""' in line
    assert '"epsilon": "inf"' in line


def test_a14_references_run_once_for_all_budgets(bench):
    budgets = "epsilon = [0.5, 1.0, 2.0]"
    bench.run(bench.grid(mechanisms=["fx-ok", "fx-nonprivate"], repeats=2, budgets=budgets))
    assert len(bench.by_mechanism()["fx-ok"]) == 6
    assert len(bench.by_mechanism()["fx-nonprivate"]) == 2


def test_a14_budgets_in_any_notion_carry_all_of_them(bench):
    for stated, name in (("b_g = [1.5]", "b_g"), ("rho = [0.75]", "rho")):
        bench.run(bench.grid(budgets=stated))
        record = next(r for r in bench.records().values() if r["subject"]["budget"][name])
        figures = record["budget_figures"]
        assert abs(figures["epsilon"] - 5.55) < 1e-2
        assert round(figures["rho"], 6) == 0.75
        assert round(figures["b_g"], 6) == 1.5


def test_a14_repeats_that_are_one_release_are_remarked_on(bench):
    plugin = bench.folder / "stuck.py"
    text = (ROOT / "tests" / "fixtures_plugin.py").read_text()
    old = "noise = rng.normal(0, spread, len(frame))"
    assert old in text
    plugin.write_text(text.replace(old, "noise = np.zeros(len(frame))"))
    bench.plugins = [plugin]
    grid = bench.grid(repeats=2)
    grid.write_text(grid.read_text().replace("fixtures-plugin/", "stuck/"))
    told = bench.run(grid).stdout
    assert "The 2 repeats of stuck/fx-ok on" in told
    assert "one and the same release" in told
