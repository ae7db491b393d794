"""What the house promises about itself."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import panelbench
from panelbench.board import COLUMNS
from panelbench.catalog import installed, versions
from panelbench.loader import Plugin, load

ROOT = Path(__file__).parents[2]
CODE = [*ROOT.glob("harness/panelbench/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]


def tracked() -> list[Path]:
    listing = subprocess.run(
        [shutil.which("git") or "git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def test_the_top_level_is_as_the_people_it_is_for_fixed_it():
    names = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {
        *("pyproject.toml", "harness", "plugins", "benchmarks", "tests", "leaderboards"),
        "README.md",
    } <= names


def test_no_module_is_longer_than_400_lines_and_none_is_a_drawer():
    for path in CODE:
        assert len(path.read_text().splitlines()) <= 400, path
        assert path.stem not in {"utils", "helpers", "common", "misc", "manager"}, path


def test_public_is_what_the_package_lists():
    for name in panelbench.__all__:
        assert getattr(panelbench, name) is not None
    assert sorted(panelbench.__all__) == sorted(panelbench._MODULE)


def test_the_core_needs_no_torch_jax_numba_or_pyarrow():
    core = set(versions(Plugin(name="core", target="panelbench")))
    assert not {"torch", "jax", "numba", "pyarrow", "mbi", "opacus"} & core
    assert "dp-accounting" in core


def test_only_one_module_imports_dp_accounting():
    importing = [p.name for p in CODE if re.search(r"(from|import) dp_accounting", p.read_text())]
    assert len(importing) == 1


def test_plugins_import_the_public_package_only():
    allowed = set(panelbench.__all__) | {"accounting", "testing"}
    allowed |= {"binning", "bounds", "coders", "flatten"}  # what mechanisms over tables share
    for path in ROOT.glob("plugins/*/src/**/*.py"):
        own = path.relative_to(ROOT / "plugins").parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("panelbench"):
                top = (node.module or "").split(".")
                if top[0] == "panelbench":
                    rest = top[1:] or [alias.name for alias in node.names]
                    assert set(rest) <= allowed, f"{path}: {node.module}"
                else:
                    assert top[0] == f"panelbench_{own}", f"{path} imports another plugin"


def test_every_module_of_the_harness_is_in_its_readme():
    text = (ROOT / "harness" / "README.md").read_text()
    for path in ROOT.glob("harness/panelbench/*.py"):
        if path.stem != "__init__":
            assert f"`{path.stem}`" in text, path.stem


def test_every_plugin_is_in_the_readme_of_plugins_and_every_component_in_its_own():
    listed = (ROOT / "plugins" / "README.md").read_text()
    for name, plugin in installed().items():
        folder = ROOT / "plugins" / name
        if folder.is_dir():
            assert f"`{name}`" in listed
            own = (folder / "README.md").read_text()
            for _, short in load(plugin):
                assert short in own, f"{name}/{short}"


def test_every_column_of_the_csv_is_explained():
    text = (ROOT / "leaderboards" / "README.md").read_text()
    for column in COLUMNS:
        assert f"`{column}`" in text, column


def test_the_lock_pins_torch():
    assert "torch==2.13.0" in (ROOT / "benchmarks" / "env" / "lock.txt").read_text()


def test_every_plugin_has_a_manifest_with_one_entry_point_and_ranges():
    for manifest in ROOT.glob("plugins/*/pyproject.toml"):
        project = tomllib.loads(manifest.read_text())["project"]
        assert list(project["entry-points"]["panelbench"]) == [manifest.parent.name]
        assert all("==" not in requirement for requirement in project["dependencies"])


def test_nothing_committed_names_this_machine_or_a_package_index():
    places = re.compile(
        r"(^|[^A-Za-z0-9_.])/(wor[k]|roo[t]|far[m]|hom[e])/|extra-index-ur[l]|find-link[s]",
        re.MULTILINE,
    )
    for path in tracked():
        if path.suffix in {".py", ".md", ".toml", ".txt", ".csv", ""}:
            assert not places.search(path.read_text(errors="replace")), path


def test_no_file_is_larger_than_five_megabytes():
    for path in tracked():
        assert path.stat().st_size < 5 * 2**20, path


def test_the_walk_is_one_way():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
