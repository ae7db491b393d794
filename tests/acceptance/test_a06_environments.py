"""A06: plugins whose pins exclude each other run in one grid, each in its own environment."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sysconfig
import zipfile
from pathlib import Path

import pytest

import panelbench
from panelbench.catalog import versions
from panelbench.loader import Plugin

MECHANISM = '''
from dataclasses import dataclass
import fx_pinned
from panelbench import USER_TABLES, Established, GaussianEvent, Guarantee, Mechanism
from panelbench import PrivacyUnit, SyntheticTables, hookimpl
from panelbench.accounting import gaussian_stddev

@dataclass(frozen=True, kw_only=True)
class Pinned(Mechanism):
    """Says which version it found.

    Formal guarantee: adds noise to nothing and charges for it.
    """

    name = "pinned"
    kind = USER_TABLES

    def release(self, dataset, budget, *, rng):
        stddev = gaussian_stddev(budget, l2_sensitivity=1.0)
        guarantee = Guarantee(
            established=Established.SETTLED,
            unit=PrivacyUnit.USER,
            relation=budget.relation,
            ledger=(GaussianEvent(stddev=stddev, l2_sensitivity=1.0),),
        )
        info = {"version": fx_pinned.VERSION, "file": fx_pinned.__file__}
        frame = dataset.train.head(1)
        return SyntheticTables(
            schema=dataset.schema, frame=frame, guarantee=guarantee, info=info
        )

@hookimpl
def register_mechanisms():
    return [Pinned]
'''


def wheel(folder, name, version, files, *, requires=(), extras=(), points=""):
    """A wheel with these files, made by hand so that no build tool and no index is needed."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Provides-Extra: {extra}\n" for extra in extras)
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": kind}
    if points:
        files[f"{info}/entry_points.txt"] = points
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


@pytest.fixture
def pinned(bench, tmp_path):
    """Two plugins that pin different versions of a library, and wheels of all that they need.

    The wheel of the harness lends what it requires itself from the interpreter of the tests.
    """
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    modules = Path(panelbench.__file__).parent.glob("*.py")
    core = {f"panelbench/{path.name}": path.read_text() for path in modules}
    lent = f"{sysconfig.get_paths()['purelib']}\n"
    wheel(wheels, "panelbench", "0.1.0", {**core, "lent.pth": lent})
    for version in ("1.0", "2.0"):
        wheel(wheels, "fx_pinned", version, {"fx_pinned.py": f"VERSION = '{version}'\n"})
    for name, version in (("fx_one", "1.0"), ("fx_two", "2.0")):
        extra = name.replace("_", "-")
        points = (
            f"[panelbench]\n{extra} = {name}.plugin\n[panelbench.environment]\n{extra} = {name}\n"
        )
        wheel(
            wheels,
            name,
            "0.1",
            {f"{name}/__init__.py": "", f"{name}/plugin.py": MECHANISM},
            requires=["panelbench", f"fx-pinned=={version}; extra == '{extra}'"],
            extras=[extra],
            points=points,
        )
        with zipfile.ZipFile(wheels / f"{name}-0.1-py3-none-any.whl") as archive:
            archive.extractall(site)  # installed beside the harness, without the extra
    with zipfile.ZipFile(wheels / "panelbench-0.1.0-py3-none-any.whl") as archive:
        archive.extract(
            "panelbench-0.1.0.dist-info/METADATA", site
        )  # so that it comes from a wheel
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    bench.environment |= {
        "PYTHONPATH": os.pathsep.join([str(site), *filter(None, inherited)]),
        "PANELBENCH_ENVIRONMENTS": str(tmp_path / "environments"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND" + "_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
    }
    return bench


@pytest.mark.slow
def test_a06_two_plugins_with_pins_that_exclude_each_other_run_in_one_grid(pinned):
    grid = pinned.grid(mechanisms=["fx-ok", "fx-one/pinned", "fx-two/pinned"])
    said = pinned("plan", grid, "--store", pinned.store, rc=1).stderr
    assert "run `panelbench env build fx-one`" in said  # before anything is computed
    assert not pinned.records()

    pinned("env", "build", "fx-one")
    pinned("env", "build", "fx-two")
    listed = json.loads(pinned("env", "list", "--json").stdout)
    assert {name: row["state"] for name, row in listed.items() if name.startswith("fx")} == {
        "fx-one": "built",
        "fx-two": "built",
    }

    pinned.run(grid)
    found = [record for records in pinned.by_mechanism().values() for record in records]
    assert [record["status"] for record in found] == ["ok"] * 3
    versions = {
        record["subject"]["mechanism"]["name"]: record["info"]["release"].get("version")
        for record in found
    }
    assert versions["fx-one/pinned"] == "1.0"
    assert versions["fx-two/pinned"] == "2.0"
    for record in found:  # a version is part of a cell's key, each as its environment has it
        if (version := record["info"]["release"].get("version")) is not None:
            assert record["versions"]["fx-pinned"] == version

    shown = pinned("list", "--strict").stdout
    assert "fx-one/pinned" in shown
    said = pinned("env", "build", "fx-tow", rc=1).stderr
    assert "Did you mean 'fx-two'" in said


def test_a06_an_environment_that_pip_cannot_build_leaves_nothing_behind(pinned, tmp_path):
    (tmp_path / "wheels" / "fx_pinned-1.0-py3-none-any.whl").unlink()
    said = pinned("env", "build", "fx-one", rc=1).stderr
    assert "could not be built" in said
    assert not list((tmp_path / "environments").iterdir())
    assert "not built" in pinned("env", "list", "fx-one").stdout
    strict = pinned("list", "--strict").stdout  # not ready is not broken
    assert "not ready: fx-one" in strict


def test_a06_an_environment_is_out_of_date_once_its_plugin_requires_something_else(
    pinned, tmp_path
):
    pinned("env", "build", "fx-one")
    metadata = tmp_path / "site" / "fx_one-0.1.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text() + "Requires-Dist: numpy\n")
    assert "out of date" in pinned("env", "list", "fx-one").stdout
    grid = pinned.grid(mechanisms=["fx-one/pinned"])
    said = pinned("plan", grid, "--store", pinned.store, rc=1).stderr
    assert "out of date; run `panelbench env build fx-one`" in said


def test_a06_an_environment_made_from_another_checkout_is_out_of_date(pinned, tmp_path):
    pinned("env", "build", "fx-one")
    origin = tmp_path / "site" / "fx_one-0.1.dist-info" / "direct_url.json"
    origin.write_text(json.dumps({"url": tmp_path.as_uri(), "dir_info": {"editable": True}}))
    assert "out of date" in pinned("env", "list", "fx-one").stdout


def test_a06_nothing_that_the_core_requires_keeps_pandas_back():
    core = versions(Plugin(name="core", target="panelbench")).keys() - {"python"}
    asked = [
        (name, requirement)
        for name in sorted(core)
        for requirement in importlib.metadata.requires(name) or ()
        if re.match(r"pandas\b", requirement) and "extra ==" not in requirement
    ]
    assert "panelbench" in [name for name, _ in asked]
    assert not [pair for pair in asked if re.search(r"<|==|~=", pair[1].split(";")[0])]
