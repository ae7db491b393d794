"""What all tests share: the command in a process of its own, grids, and a stranger's packages."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
FX = ROOT / "tests" / "fixtures_plugin.py"


@dataclass
class Bench:
    """Panelbench as a user has it: a working folder, a store, and the command."""

    folder: Path
    cache: Path
    environment: dict[str, str] = field(default_factory=dict)
    plugins: list[Path] = field(default_factory=lambda: [FX])

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def command(self, *arguments: object, plugins: bool = True) -> list[str]:
        files = [f"--plugin={path}" for path in self.plugins] if plugins else []
        first, *rest = map(str, arguments)
        return [sys.executable, "-m", "panelbench.cli", first, *files, *rest]

    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k != "PANELBENCH_DATA"}
        return {**kept, "XDG_CACHE_HOME": str(self.cache), **self.environment}

    def start(self, *arguments: object, **options: object) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(
            self.command(*arguments), cwd=self.folder, env=self.env(), text=True, **pipes
        )

    def __call__(self, *arguments: object, rc: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.env(),
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert rc is None or done.returncode == rc, done.stdout + done.stderr
        return done

    def children(self) -> list[psutil.Process]:
        """The processes that work for this store, told by the cache that they were given."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("PANELBENCH_CACHE") == str(self.store / "cache"):
                    found.append(process)
        return found

    def grid(self, text: str = "", *, name: str = "fx", **parts: object) -> Path:
        """Write a grid of fixture components; `parts` say what differs from one small cell."""
        values = {
            "repeats": 1,
            "budgets": "epsilon = [1.0]",
            "limits": "seconds = 60\nmemory_mb = 4096",
            "datasets": ["tiny"],
            "mechanisms": ["fx-ok"],
            "metrics": ["fx-gap"],
            **parts,
        }
        lines = [f'name = "{name}"', f"repeats = {values['repeats']}"]
        lines += ["[budgets]", str(values["budgets"]), "[limits]", str(values["limits"])]
        for table in ("datasets", "mechanisms", "metrics"):
            for entry in values[table]:
                full, params = (entry, "") if isinstance(entry, str) else entry
                owner = full if "/" in full else f"fixtures-plugin/{full}"
                lines += [f"[[{table}]]", f'name = "{owner}"']
                lines += [f"params = {params}"] if params else []
        path = self.folder / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n" + text)
        return path

    def run(self, grid: Path, *arguments: object, rc: int | None = 0, **options: object):
        return self("run", grid, "--store", self.store, *arguments, rc=rc, **options)

    def records(self, what: str = "records", store: Path | None = None) -> dict[str, dict]:
        folder = (store or self.store) / what
        return {p.name: json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))}

    def by_mechanism(self, store: Path | None = None) -> dict[str, list[dict]]:
        found: dict[str, list[dict]] = {}
        for record in self.records(store=store).values():
            name = record["subject"]["mechanism"]["name"].rsplit("/", 1)[-1]
            found.setdefault(name, []).append(record)
        return found

    def board(self, name: str = "fx", *, timeless: bool = True) -> list[str]:
        """The lines of the CSV, without what a clock or a memory meter gave."""
        rows = list(csv.DictReader((self.store / f"{name}.csv").read_text().splitlines()))
        for row in rows if timeless else ():
            del row["seconds"], row["peak_mb"]
        return [json.dumps(row) for row in rows]


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def new_bench(tmp_path_factory, shared_cache: Path) -> Callable[[], Bench]:
    """For what is made once for several tests."""
    return lambda: Bench(folder=tmp_path_factory.mktemp("bench"), cache=shared_cache)


@pytest.fixture
def bench(tmp_path: Path, shared_cache: Path) -> Bench:
    return Bench(folder=tmp_path, cache=shared_cache)


@dataclass
class Site:
    """A folder of a stranger's installed packages, found through PYTHONPATH."""

    folder: Path

    def install(self, name: str, modules: dict[str, str], *, version: str = "0.1") -> Path:
        """Install a distribution `name` whose plugin is the package `<name>` with these modules."""
        package = self.folder / name
        package.mkdir(parents=True, exist_ok=True)
        for module, text in modules.items():
            (package / f"{module}.py").write_text(text)
        info = self.folder / f"{name}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        info.joinpath("METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        entry = name.replace("_", "-")
        info.joinpath("entry_points.txt").write_text(f"[panelbench]\n{entry} = {name}.plugin\n")
        return package


@pytest.fixture
def site(bench: Bench, tmp_path: Path) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    bench.environment["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, inherited)])
    return Site(folder)
