"""A04: what a result depends on, and nothing else, makes it new."""

from __future__ import annotations

import pytest

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
