"""`panelbench new` writes what passes its own tests and the exam, as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from panelbench.scaffold import render

EXAMPLE = Path(__file__).parents[2] / "plugins" / "example" / "src" / "panelbench_example"


@pytest.mark.parametrize("kind", ["mechanism", "dataset", "metric"])
def test_a_new_package_passes_its_own_tests_and_the_exam(bench, tmp_path, kind):
    name = f"brand-new-{kind}"
    told = bench("new", kind, name)
    assert f"panelbench check {name}" in told.stdout
    site = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, *install, "--target", site, bench.folder / name], check=True, timeout=120
    )
    bench.environment["PYTHONPATH"] = str(site)
    assert "0 failed" in bench("check", name).stdout or bench("check", name).returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", bench.folder / name],
        env=bench.env(), cwd=bench.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("kind", "module", "name"),
    [
        ("mechanism", "histograms", "histograms"),
        ("dataset", "walks", "walks"),
        ("metric", "mean_error", "mean-error"),
    ],
)
def test_what_it_writes_is_the_example(kind, module, name):
    assert render(kind, kind, name) == (EXAMPLE / f"{module}.py").read_text()


@pytest.mark.parametrize("name", ["Mine", "my_mechanism", "1st", "class", "a--b"])
def test_what_is_no_name_is_refused(bench, name):
    assert "is no name for a plugin" in bench("new", "metric", name, rc=1).stderr


def test_nothing_that_is_there_is_overwritten(bench):
    (bench.folder / "mine").mkdir()
    assert "is there already" in bench("new", "metric", "mine", rc=1).stderr
