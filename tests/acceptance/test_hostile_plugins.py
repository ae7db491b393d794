"""Whatever a plugin does, the grid ends, the record says what happened, and the board is true."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

HEAD = """
import os, sys
from dataclasses import dataclass, field, replace
import numpy as np
import fixtures_plugin as fx
from panelbench import *
from panelbench import hookimpl

def scribble():
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and "pipe" in os.readlink(f"/proc/self/fd/{name}"):
                os.write(int(name), b"{ scribble\\n")
        except OSError:
            continue

"""
MECHANISM = '''
@dataclass(frozen=True, kw_only=True)
class M(fx.Ok):
    """Hostile."""
    name = "hostile"
    {extra}
    def release(self, dataset, budget, *, rng):
        release = super().release(dataset, budget, rng=rng)
        {body}

@hookimpl
def register_mechanisms():
    return [M]
'''
OTHER_UNIT = """return replace(release, guarantee=replace(release.guarantee,
            unit=PrivacyUnit.SENSOR_TRAJECTORY))"""
METRIC = '''
@dataclass(frozen=True, kw_only=True)
class X(fx.Gap):
    """Hostile."""
    name = "hostile"
    def score(self, reference, release, *, rng):
        {body}

@hookimpl
def register_metrics():
    return [X]
'''


@pytest.fixture
def hostile(bench, tmp_path):
    """Run a grid of one hostile component beside a sound one; the hostile one's record."""

    def run(body: str, *, template: str = MECHANISM, extra: str = "", rc: int = 3) -> dict:
        folder = tmp_path / "mine"
        folder.mkdir(exist_ok=True)
        shutil.copy(bench.plugins[0], folder / "fixtures_plugin.py")
        path = folder / "bad.py"
        path.write_text(HEAD + template.format(body=body, extra=extra))
        bench.plugins = [bench.plugins[0], path]
        part = "mechanisms" if template is MECHANISM else "metrics"
        sound = "fx-ok" if part == "mechanisms" else "fx-gap"
        bench.run(bench.grid(**{part: [sound, "bad/hostile"]}), rc=rc)
        found = [*bench.records().values(), *bench.records("scores").values()]
        subject = "mechanism" if part == "mechanisms" else "metric"
        (record,) = [r for r in found if r["subject"].get(subject, {}).get("name") == "bad/hostile"]
        return record

    return run


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("sys.exit(0)", "failed", "SystemExit"),
        ("os._exit(7)", "failed", "exit status 7"),
        ("os.kill(os.getpid(), 40)", "killed", "signal 40"),
        ("return None", "invalid", "returned NoneType"),
        ("return replace(release, guarantee=None)", "failed", "needs a Guarantee"),
        ("raise ValueError('x\\ny' * 3000)", "failed", "see the log"),
        ("scribble(); 1 / 0", "failed", "ZeroDivisionError"),
        (
            OTHER_UNIT,
            "invalid",
            "protects 'sensor-trajectory', but the data need 'user'",
        ),
    ],
)
def test_a_hostile_mechanism_leaves_one_record_and_the_sound_one_is_ranked(
    bench, hostile, body, status, said
):
    record = hostile(body)
    assert (record["status"], record["attempt"]) == (status, 1)
    assert said in record["error"]
    assert "\n" not in record["error"]
    assert len(record["error"]) < 600
    assert any('"rank": "1"' in line for line in bench.board() if "fx-ok" in line)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("yield Score(component='gap', value=1.0, floor=float('nan'))", "floor is not finite"),
        ("yield Score(component='gap', value=1.0, detail={'x': float('inf')})", "x is not finite"),
        ("yield Score(component='gap', value=1e308)", "not finite"),
        ("yield from [Score(component='gap', value=1.0)] * 2", "scored twice"),
        ("yield 3", "A metric yields Score, got int"),
    ],
)
def test_a_hostile_score_is_invalid_and_the_board_is_rendered(bench, hostile, body, said):
    record = hostile(body, template=METRIC)
    assert record["status"] == "invalid"
    assert said in record["error"]
    assert bench.board()


def test_a_score_in_another_float_type_is_taken(hostile):
    body = "yield Score(component='gap', value=np.float32(1.5), detail={'x': np.float32(1)})"
    assert hostile(body, template=METRIC, rc=0)["scores"][0]["value"] == 1.5


def test_a_metric_that_has_nothing_to_score_gets_no_row(bench, hostile):
    hostile("return []", template=METRIC, rc=0)
    assert not any("bad/hostile" in line for line in bench.board())


def test_a_private_mechanism_with_an_empty_ledger_is_shown_among_those_that_read_nothing(
    bench, hostile
):
    hostile("return replace(release, guarantee=replace(release.guarantee, ledger=()))", rc=0)
    line = next(line for line in bench.board() if "bad/hostile" in line)
    assert '"section": "data-independent-baseline"' in line
    told = bench("check", "bad", rc=1).stdout
    assert "Its ledger is empty, but the release changed when one unit was removed" in told


def test_a_baseline_that_spends_is_invalid(hostile):
    record = hostile("return release", extra="role = Role.BASELINE")
    assert record["status"] in {"invalid", "failed"}


def test_what_assumes_more_is_neither_starred_nor_ranked_against_the_others(bench, hostile):
    hostile(
        "return replace(release, guarantee=replace(release.guarantee, public=('the mean',)))", rc=0
    )
    told = bench("leaderboard", bench.folder / "fx.toml", "--store", bench.store).stdout
    assert "recomputed by the harness; assumed: the mean" in told
    assert "assumed: the mean" in (bench.store / "fx.html").read_text()


def test_the_exam_survives_a_plugin_that_ends_the_process(bench, hostile):
    hostile("os._exit(7)")
    findings = json.loads(bench("check", "bad", "--json", rc=1).stdout)["bad"]
    found = {finding["fact"]: finding for finding in findings}
    runs = found["hostile runs on a tiny panel."]
    assert (runs["passed"], runs["why"]) == (False, "It ended the process: exit status 7")
    documented = found["hostile says what it does, and documents each parameter."]
    assert "Describe 'shift'" in documented["why"]  # asked before
    assert "hostile charges the same ledger for neighboring data." in found  # and after
    assert [f["fact"] for f in findings].count("The plugin loads.") == 1


def test_the_exam_survives_a_plugin_that_writes_into_its_pipes(bench, hostile):
    hostile("scribble(); return release", rc=None)
    findings = json.loads(bench("check", "bad", "--json", rc=1).stdout)["bad"]
    assert [f["fact"] for f in findings if not f["passed"]] == [
        "hostile says what it does, and documents each parameter."
    ]


def test_the_exam_tells_components_of_one_name_apart(bench, hostile):
    hostile("return release", rc=0)
    file = bench.plugins[-1]
    file.write_text(file.read_text() + METRIC.format(body="yield from super().score(1, 2, rng=3)"))
    findings = json.loads(bench("check", "bad", "--json", rc=1).stdout)["bad"]
    documented = [f["passed"] for f in findings if "documents each parameter" in f["fact"]]
    assert documented == [False, True]  # the mechanism does not describe its `shift`


def test_a_subset_of_datasets_leaves_the_whole_board_alone(bench):
    datasets = ["tiny", ("tiny", "{ users = 80 }")]
    grid = bench.grid(datasets=datasets)
    bench.run(grid)
    before = (bench.store / "fx.csv").read_bytes()
    bench("plan", grid, "--store", bench.store, "-d", "tiny")
    bench.run(bench.grid(datasets=[*datasets, ("tiny", "{ users = 60 }")]), "-d", "*/tiny")
    assert (bench.store / "fx.csv").read_bytes() == before
    part = (bench.store / "fx-part.csv").read_bytes()
    bench("leaderboard", "fx-part", "--store", bench.store)
    bench("publish", "fx-part", "--store", bench.store, "--to", bench.folder / "out")
    assert (bench.store / "fx.csv").read_bytes() == before
    assert (bench.folder / "out" / "fx-part.csv").read_bytes() == part


def test_where_only_a_part_ran_its_name_is_told(bench):
    grid = bench.grid(datasets=["tiny", ("tiny", "{ users = 80 }")])
    bench.run(grid, "-d", "*80*")
    told = bench("publish", grid, "--store", bench.store, rc=1).stderr
    assert "never run in the store" in told
    assert "but for some datasets; name 'fx-part', or run it first" in told


def test_an_entry_is_asked_for_by_its_label(bench):
    shifted = '{ shift = 0.5 }\nlabel = "shifted [2]"'
    grid = bench.grid(mechanisms=["fx-ok", ("fx-ok", shifted)])
    said = bench.run(grid, "-m", "shift*", "-m", "nobody", rc=1).stderr
    assert "Unknown mechanism 'nobody'. Available: fixtures-plugin/fx-ok, shifted [2]" in said
    assert "Preparing" not in said
    said = bench.run(grid, "-m", "shifted [2]", rc=0).stderr
    assert "Other mechanisms lack cells (1), and their entries are incomplete" in said
    assert [r["subject"]["mechanism"]["params"]["shift"] for r in bench.records().values()] == [0.5]


def test_a_store_that_takes_no_log_is_said_in_one_sentence(bench):
    bench.store.mkdir()
    (bench.store / "logs").write_text("")
    said = bench.run(bench.grid(), rc=1).stderr
    assert "could not be written" in said
    assert "Traceback" not in said


def test_a_board_that_cannot_be_kept_is_printed_all_the_same(bench):
    grid = bench.grid()
    bench.run(grid)
    (bench.store / "fx.csv").unlink()
    (bench.store / "fx.csv").mkdir()  # nothing can be written over it
    told = bench("leaderboard", grid, "--store", bench.store, rc=0)
    assert "fx-ok" in told.stdout
    assert "cannot be written" in told.stderr
    asked = ("--csv", bench.store / "fx.csv")
    assert "cannot" in bench("leaderboard", grid, "--store", bench.store, *asked, rc=1).stderr


def test_what_a_mechanism_says_moves_no_cursor(hostile):
    record = hostile(r"raise ValueError('\x1b[2J gone \x00')")
    assert record["error"].endswith(": [2J gone")


def test_two_grids_of_one_name_do_not_share_a_store(bench):
    grid = bench.grid()
    bench.run(grid)
    other = grid.with_name("copy.toml")
    other.write_text(grid.read_text())
    assert "holds another grid called 'fx', from 'fx.toml'" in bench.run(other, rc=1).stderr


def test_a_lost_release_and_a_damaged_dataset_are_made_again(bench):
    grid = bench.grid()
    bench.run(grid)
    board = bench.board()
    shutil.rmtree(bench.store / "releases")
    next((bench.store / "datasets").glob("*/1.npy")).unlink()
    bench.run(bench.grid(metrics=["fx-gap", "fx-count"]))
    assert [line for line in bench.board() if "fx-gap" in line] == board


def test_a_broken_record_of_another_grid_is_in_nobodys_way(bench):
    bench.run(bench.grid())
    (bench.store / "records" / f"{0:024x}-1.json").write_text("{")
    bench.run(bench.grid(repeats=2))
    bench("status", bench.folder / "fx.toml", "--store", bench.store)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"budgets": "epsilon = [1, 1.0]"}, "states one budget twice"),
        (
            {"budgets": 'epsilon = [1]\nrelation = ["replace-one", "replace-one"]'},
            "states one budget twice",
        ),
        ({"budgets": "epsilon = [1]\nrelation = []"}, "at least one relation"),
        ({"budgets": "epsilon = [1]\nrelation = 5"}, "Unknown relation '5'"),
        ({"budgets": f"epsilon = [1{'0' * 400}]"}, "must be a number from 0 to 10000"),
        ({"mechanisms": ["fx-ok", ("fx-ok", "{ shift = 0.0 }")]}, "defaults filled in"),
        ({"mechanisms": [("fx-ok", "{ shift = 2020-01-01 }")]}, "not JSON serializable"),
        ({"mechanisms": [("fx-ok", '{ shift = "much" }')]}, "shift must be float, got 'much'"),
        ({"datasets": [("tiny", "{ users = true }")]}, "users must be int, got True"),
        ({"repeats": 10**9}, "repeats must be a whole number from 1 to 10000"),
        ({"name": "x" * 300}, "name must hold up to 80"),
    ],
)
def test_a_grid_that_would_mislead_is_refused_in_one_sentence(bench, parts, said):
    done = bench.run(bench.grid(**parts) if "name" not in parts else _named(bench, **parts), rc=1)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def _named(bench, name):
    path = bench.grid()
    path.write_text(path.read_text().replace('name = "fx"', f'name = "{name}"', 1))
    return path


def test_workers_and_retry_are_checked_before_anything_runs(bench):
    grid = bench.grid()
    for workers in ("0", "-1", "x"):
        bench.run(grid, "--workers", workers, rc=2)
    assert "Unknown status 'ok'" in bench.run(grid, "--retry", "ok", rc=1).stderr


def test_a_store_that_cannot_be_a_folder_is_one_sentence(bench):
    (bench.folder / "file").write_text("")
    done = bench("run", bench.grid(), "--store", bench.folder / "file", rc=1)
    assert "cannot be a folder" in done.stderr


def test_the_csv_can_go_to_standard_output_and_excludes_no_mean_from_its_interval(bench):
    grid = bench.grid(repeats=3)
    bench.run(grid)
    told = bench("leaderboard", grid, "--store", bench.store, "--csv", "-").stdout
    assert told == (bench.store / "fx.csv").read_text()
    for row in csv.DictReader(told.splitlines()):
        assert float(row["lower"]) <= float(row["mean"]) <= float(row["upper"])
