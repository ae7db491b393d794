"""A04: what a result depends on, and nothing else, makes it new."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import panelbench
from panelbench.catalog import _AUDIT, _CORE

ROOT = Path(__file__).parents[2]
OUT_OF_KEYS = {"catalog", "environments", "errors", "hookspecs", "record"}
"""Harness modules of a child that find, refuse and write, and compute no number."""

PLUGIN = '''
from dataclasses import dataclass
from panelbench import hookimpl, Score
import fixtures_plugin as fx
from . import helper

@dataclass(frozen=True, kw_only=True)
class Mine(fx.Ok):
    """Mine."""
    name = "mine"

@dataclass(frozen=True, kw_only=True)
class MyGap(fx.Gap):
    """My gap."""
    name = "my-gap"

@hookimpl
def register_{kind}s():
    return [{cls}]
'''


@pytest.fixture
def three(bench, site):
    """A grid over two mechanism packages and a metric package."""
    site.folder.joinpath("fixtures_plugin.py").write_text(bench.plugins[0].read_text())
    for name, kind, cls in (
        ("alpha", "mechanism", "Mine"),
        ("beta", "mechanism", "Mine"),
        ("gamma", "metric", "MyGap"),
    ):
        text = PLUGIN.format(kind=kind, cls=cls)
        site.install(name, {"__init__": "", "plugin": text, "helper": "A = 1\n"})
    return bench.grid(
        datasets=["tiny", "from-file"],
        mechanisms=["alpha/mine", "beta/mine"],
        metrics=["gamma/my-gap", "fx-count"],
    )


def fresh(bench, grid) -> tuple[list[str], int]:
    """Run; the mechanisms that ran anew, and how many scores did."""
    cells, scores = set(bench.records()), set(bench.records("scores"))
    bench.run(grid, "--data", bench.folder)
    new = [r for name, r in bench.records().items() if name not in cells]
    ran = sorted(
        f"{r['subject']['mechanism']['name']} {r['subject']['dataset']['name'].split('/')[1]}"
        for r in new
    )
    return ran, len(set(bench.records("scores")) - scores)


def test_a04_only_what_a_cell_depends_on_reruns_it(bench, site, three):
    bench.folder.joinpath("seed.txt").write_text("1")
    everything = [
        "alpha/mine from-file",
        "alpha/mine tiny",
        "beta/mine from-file",
        "beta/mine tiny",
    ]
    # alpha and beta release the same from the same stream, and one release is scored once
    assert fresh(bench, three) == (everything, 4)
    assert fresh(bench, three) == ([], 0)

    site.folder.joinpath("beta", "helper.py").write_text("A = 1  # a comment\n")
    assert fresh(bench, three)[0] == ["beta/mine from-file", "beta/mine tiny"]

    site.folder.joinpath("alpha", "helper.py").write_text("A = 2\n")
    assert fresh(bench, three)[0] == ["alpha/mine from-file", "alpha/mine tiny"]

    bench.folder.joinpath("seed.txt").write_text("2")
    assert fresh(bench, three)[0] == ["alpha/mine from-file", "beta/mine from-file"]

    site.folder.joinpath("gamma", "helper.py").write_text("A = 3\n")
    assert fresh(bench, three) == ([], 2)


def test_a04_explain_names_the_field_that_changed(bench, site, three):
    bench.folder.joinpath("seed.txt").write_text("1")
    bench.run(three, "--data", bench.folder)
    old = next(
        name.split("-")[0]
        for name, record in bench.records().items()
        if record["subject"]["mechanism"]["name"] == "alpha/mine"
    )
    site.folder.joinpath("alpha", "helper.py").write_text("A = 9\n")
    told = bench("explain", three, old, "--store", bench.store, "--data", bench.folder).stdout
    assert "miss: what a record depends on changed" in told
    assert "code was" in told
    assert "data was" not in told


def test_a04_explain_says_why_a_score_is_missing(bench, site, three):
    bench.folder.joinpath("seed.txt").write_text("1")
    bench.run(three, "--data", bench.folder)
    old = next(iter(bench.records())).split("-")[0]
    site.folder.joinpath("gamma", "helper.py").write_text("A = 7\n")
    shutil.rmtree(bench.store / "releases")
    told = bench("explain", three, old, "--store", bench.store, "--data", bench.folder).stdout
    assert "hit: recorded as ok; its release is no longer here" in told
    assert "code of gamma was" in told
    assert "score missing: gamma/my-gap" in told


def test_a04_a_module_beside_a_plugin_file_counts_too(bench, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    folder.joinpath("fixtures_plugin.py").write_text(bench.plugins[0].read_text())
    text = PLUGIN.format(kind="mechanism", cls="Mine").replace("from . import helper", "import aid")
    folder.joinpath("my_file.py").write_text(text)
    folder.joinpath("aid.py").write_text("A = 1\n")
    folder.joinpath("unrelated.py").write_text("A = 1\n")
    bench.plugins.append(folder / "my_file.py")
    grid = bench.grid(mechanisms=["my-file/mine"])
    assert fresh(bench, grid)[0] == ["my-file/mine tiny"]
    folder.joinpath("unrelated.py").write_text("A = 2\n")
    assert fresh(bench, grid)[0] == []
    folder.joinpath("aid.py").write_text("A = 2\n")
    assert fresh(bench, grid)[0] == ["my-file/mine tiny"]


@pytest.mark.parametrize(("child", "keyed"), [("worker", _CORE), ("auditor", {*_CORE, *_AUDIT})])
def test_a04_what_a_child_and_plugins_import_of_the_harness_is_in_the_key(child, keyed):
    code = f"import sys, panelbench.{child}; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    sources = [path.read_text() for path in ROOT.glob("plugins/*/src/**/*.py")]
    named = re.findall(r"^ *from panelbench\.(\w+) import", "\n".join(sources), re.MULTILINE)
    imported = {*re.findall(r"^panelbench\.(\w+)$", done.stdout, re.MULTILINE), *named}
    assert imported - {*keyed} == OUT_OF_KEYS


def test_a04_the_harness_counts_where_it_can_change_a_release(bench, tmp_path):
    copy = tmp_path / "harness" / "panelbench"
    shutil.copytree(Path(panelbench.__file__).parent, copy)
    bench.environment["PYTHONPATH"] = str(copy.parent)
    grid = bench.grid()
    assert fresh(bench, grid) == (["fixtures-plugin/fx-ok tiny"], 1)
    for module, ran in (("report", []), ("conversions", ["fixtures-plugin/fx-ok tiny"])):
        with (copy / f"{module}.py").open("a") as stream:
            stream.write("# a comment\n")
        assert fresh(bench, grid)[0] == ran, module


def test_a04_a_new_version_of_a_library_reruns_what_requires_it(bench, site, three):
    del three  # for its packages
    metadata = site.folder / "beta-0.1.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text() + "Requires-Dist: fx-library\n")
    site.install("fx_library", {"__init__": ""}, version="1.0")
    grid = bench.grid(mechanisms=["alpha/mine", "beta/mine"])
    assert fresh(bench, grid)[0] == ["alpha/mine tiny", "beta/mine tiny"]
    library = site.folder / "fx_library-1.0.dist-info" / "METADATA"
    library.write_text(library.read_text().replace("Version: 1.0", "Version: 2.0"))
    assert fresh(bench, grid)[0] == ["beta/mine tiny"]
