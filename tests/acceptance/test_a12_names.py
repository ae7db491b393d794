"""A12: what is broken or misspelt is said early, with the nearest valid name."""

from __future__ import annotations

import pytest

EMPTY = "from panelbench import hookimpl\n"
CLASS = '''
from dataclasses import dataclass
from panelbench import USER_TABLES, Mechanism, hookimpl

{decorator}
class Mine(Mechanism):
    """Mine."""
    name = {name!r}
    kind = USER_TABLES
    {body}

@hookimpl
def register_mechanisms():
    return {classes}
'''


def mechanism(**parts) -> str:
    values = {
        "decorator": "@dataclass(frozen=True, kw_only=True)",
        "name": "mine",
        "body": "def release(self, dataset, budget, *, rng): ...",
        "classes": "[Mine]",
        **parts,
    }
    return CLASS.format(**values)


def test_a12_an_unimportable_plugin_is_listed_with_its_reason_while_others_go_on(bench, site):
    site.install("fx_unimportable", {"__init__": "", "plugin": "import no_such_library\n"})
    done = bench("list")
    assert "unavailable: fx-unimportable: ModuleNotFoundError at plugin.py:1:" in done.stdout
    assert "fixtures-plugin/fx-ok" in done.stdout
    bench("list", "--strict", rc=1)
    bench.run(bench.grid())


def test_a12_a_plugin_that_ends_the_process_is_unavailable_too(bench, site):
    site.install("fx_quits", {"__init__": "", "plugin": "import os; os._exit(7)\n"})
    assert "unavailable: fx-quits: importing it ended the process" in bench("list").stdout


def test_a12_a_grid_that_names_an_unavailable_plugin_stops_at_plan_time(bench, site):
    site.install("fx_unimportable", {"__init__": "", "plugin": "import no_such_library\n"})
    done = bench.run(bench.grid(mechanisms=["fx-unimportable/x", "fx-ok"]), rc=1)
    assert "Plugin 'fx-unimportable' is unavailable: ModuleNotFoundError" in done.stderr
    assert not bench.records()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            EMPTY + "@hookimpl\ndef register_mechanism():\n    return []\n",
            "Unknown hook 'register_mechanism'. Did you mean 'register_mechanisms'?",
        ),
        (EMPTY, "registers nothing"),
        (mechanism(classes="Mine"), "must return a list of classes"),
        (mechanism(classes="[Mine, Mine]"), "registers two mechanisms called 'mine'"),
        (mechanism(classes="[int]"), "is not a subclass of panelbench.Mechanism"),
        (mechanism(decorator=""), "@dataclass(frozen=True, kw_only=True)"),
        (mechanism(decorator="@dataclass"), "@dataclass(frozen=True, kw_only=True)"),
        (mechanism(name="My Mechanism"), "lower-case words and hyphens"),
        (mechanism(body="size: int = 3"), "does not define release"),
        (
            mechanism(body="size: int\n    def release(self, d, b, *, rng): ..."),
            "Mine.size needs a default",
        ),
    ],
)
def test_a12_a_broken_contract_names_the_line_to_change(bench, site, text, said):
    site.install("fx_broken", {"__init__": "", "plugin": text})
    line = next(s for s in bench("list").stdout.splitlines() if "unavailable: fx-broken" in s)
    assert said in line


def test_a12_two_plugins_of_one_name_clash(bench, site):
    site.install("fx_one", {"__init__": "", "plugin": mechanism()})
    info = site.folder / "other-0.1.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 0.1\n")
    info.joinpath("entry_points.txt").write_text("[panelbench]\nfx-one = other.plugin\n")
    assert "Two plugins are called 'fx-one'" in bench("list", rc=1).stderr


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"mechanisms": ["fx-okk"]}, "Unknown mechanism 'fx-okk'. Did you mean 'fx-ok'?"),
        ({"mechanisms": ["fixture-plugin/fx-ok"]}, "Did you mean 'fixtures-plugin'?"),
        (
            {"mechanisms": [("fx-ok", "{ shfit = 1.0 }")]},
            "mechanism 'fixtures-plugin/fx-ok': Unknown parameter 'shfit'. Did you mean 'shift'?",
        ),
        ({"metrics": ["fx-gab"]}, "Unknown metric 'fx-gab'. Did you mean 'fx-gap'?"),
        ({"datasets": ["tiny-stream"]}, "Did you mean 'tiny-streams'?"),
        ({"datasets": ["tiny-streams"]}, "reads user-tables, which no dataset of this grid offers"),
        ({"budgets": "epsilon = [1.0]\nb_g = [1.0]"}, "exactly one of epsilon, b_g and rho"),
        ({"budgets": "epsilom = [1.0]"}, "Unknown key 'epsilom'. Did you mean 'epsilon'?"),
        ({"budgets": "epsilon = [-1.0]"}, "must be a number from 0 to 10000"),
        ({"budgets": "epsilon = [0.0]"}, "epsilon must be a positive number"),
        ({"budgets": 'epsilon = [1]\nrelation = "replace"'}, "Did you mean 'replace-one'?"),
        ({"limits": "second = 3"}, "Did you mean 'seconds'?"),
        ({"repeats": 0}, "repeats must be a whole number from 1 to 10000"),
        ({"mechanisms": ["fx-ok", "fx-ok"]}, "twice with the same params"),
        ({"mechanisms": []}, "at least one [[mechanisms]]"),
    ],
)
def test_a12_a_mistake_in_a_grid_is_one_sentence_with_the_nearest_name(bench, parts, said):
    done = bench.run(bench.grid(**parts), rc=1)
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not bench.records()


def test_a12_a_short_name_works_where_it_is_unique_and_is_refused_where_it_is_not(bench, site):
    grid = bench.grid()
    text = grid.read_text().replace("fixtures-plugin/fx-ok", "fx-ok")
    grid.write_text(text)
    bench.run(grid)
    site.install("fx_double", {"__init__": "", "plugin": mechanism(name="fx-ok")})
    assert "ambiguous; write" in bench.run(grid, rc=1).stderr


def test_a12_a_file_is_a_plugin_without_packaging(bench, tmp_path):
    path = tmp_path / "my_mechanism.py"
    path.write_text(mechanism(body="def release(self, dataset, budget, *, rng): 1 / 0"))
    bench.plugins.append(path)
    assert "my-mechanism/mine" in bench("list").stdout
    bench.run(bench.grid(mechanisms=["my-mechanism/mine"]), rc=3)
    (record,) = bench.records().values()
    assert record["error"].startswith("ZeroDivisionError at my_mechanism.py:")


def test_a12_describe_shows_docs_and_defaults_and_unknown_names_are_answered(bench):
    told = bench("describe", "fixtures-plugin/fx-ok").stdout
    assert "Noise around the middle" in told
    assert "shift = 0.0" in told
    assert "Did you mean 'fixtures-plugin/fx-ok'?" in bench("describe", "fx-okay", rc=1).stderr
