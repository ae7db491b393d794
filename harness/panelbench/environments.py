"""Environments of their own for plugins whose requirements do not go with the others'.

A distribution names its environment by an entry point, and lists what belongs there as an extra of
the same name:

    [project.entry-points."panelbench.environment"]
    heavy = "panelbench_heavy"

    [project.optional-dependencies]
    heavy = ["a-library<2"]

Beside the harness it is then installed without that extra. Its cells run with the interpreter of
the environment, where the distribution, its extra and the harness are installed. Plugins that name
the same environment share it.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from panelbench.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from panelbench.loader import Plugin

GROUP = "panelbench.environment"
FOLDER = "PANELBENCH_ENVIRONMENTS"
"""The environment variable that names the folder of all environments."""
_OURS_ALONE = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


def home() -> Path:
    """The folder of all environments."""
    if named := os.environ.get(FOLDER):
        return Path(named).expanduser()
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "panelbench" / "environments"


def named_by(distribution: importlib.metadata.Distribution) -> str:
    """The environment that a distribution names, or an empty text.

    Raises:
        PluginError: Where it names more than one.
    """
    names = sorted(point.name for point in distribution.entry_points if point.group == GROUP)
    if len(names) > 1:
        raise PluginError(
            f"The distribution '{distribution.name}' names {len(names)} environments, "
            f"{', '.join(names)}; one is possible."
        )
    return names[0] if names else ""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One environment and what belongs into it.

    Attributes:
        name: Its name.
        plugins: The plugins that run in it.
        requirements: What is installed into it, as arguments of pip.
        stated: What it was made of, to be compared with what it was built from.
    """

    name: str
    plugins: tuple[str, ...]
    requirements: tuple[str, ...]
    stated: tuple[str, ...]

    @property
    def _note(self) -> Path:
        return home() / f"{self.name}.json"

    def _built(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}

    @property
    def state(self) -> str:
        """Whether it is "built", "out of date" or "not built"."""
        built = self._built()
        if not built or not Path(built["python"]).exists():
            return "not built"
        return "built" if built["stated"] == list(self.stated) else "out of date"

    @property
    def python(self) -> str:
        """Its interpreter.

        Raises:
            PluginError: Where it is not built from what its plugins now require.
        """
        if self.state != "built":
            raise PluginError(
                f"its environment '{self.name}' is {self.state}; run "
                f"`panelbench env build {self.name}`"
            )
        return str(self._built()["python"])

    def build(self, *, constraints: Sequence[str] = (), say: Callable[[str], None]) -> None:
        """Make it anew; the one before is in use until this one is complete.

        Args:
            constraints: Constraints files for pip.
            say: Told what takes time.

        Raises:
            PluginError: Where pip fails; what pip said is on standard error.
        """
        import venv  # noqa: PLC0415 - only building needs it

        home().mkdir(parents=True, exist_ok=True)
        before = self._built()
        folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=home()))
        try:
            say(f"Making the environment '{self.name}' in {folder}")
            venv.create(folder, symlinks=True)  # ours is the pip that installs into it
            python = folder / "bin" / "python"
            say(f"Installing {' '.join(self.requirements)}")
            self._install(python, constraints)
            note = folder / "panelbench.json"
            note.write_text(json.dumps({"python": str(python), "stated": self.stated}))
            note.replace(self._note)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if before:
            old = Path(before["python"]).parent.parent
            if old.parent == home():
                shutil.rmtree(old, ignore_errors=True)

    def _install(self, python: Path, constraints: Sequence[str]) -> None:
        limits = [word for file in constraints for word in ("--constraint", file)]
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        command = [*pip, *limits, *self.requirements]
        done = subprocess.run(command, env=surroundings(foreign=True), check=False)
        if done.returncode:
            raise PluginError(
                f"The environment '{self.name}' could not be built: pip ended with exit status "
                f"{done.returncode}; see above, and pass --constraint FILE to steer it."
            )


def every() -> dict[str, Environment]:
    """Every environment that an installed distribution names, by name."""
    names = {point.name for point in importlib.metadata.entry_points(group=GROUP)}
    return {name: environment(name) for name in sorted(names)}


@functools.cache
def environment(name: str) -> Environment:
    """The environment of that name, from the metadata of what is installed."""
    points = importlib.metadata.entry_points(group=GROUP, name=name)
    members = {point.dist.name: point.dist for point in points if point.dist}
    needed = [importlib.metadata.distribution("panelbench")]
    needed += [members[each] for each in sorted(members)]
    stated = [f"python {platform.python_version()}"]
    for each in needed:
        stated += [f"{each.name} {each.version}", *sorted(each.requires or ())]
    requirements = [word for each in needed for word in _requirement(each, extra=name)]
    return Environment(
        name=name,
        plugins=tuple(
            sorted(
                point.name
                for member in members.values()
                for point in member.entry_points
                if point.group == "panelbench"
            )
        ),
        requirements=tuple(requirements),
        stated=(*stated, *requirements),  # another checkout of the same version is other code
    )


def _requirement(distribution: importlib.metadata.Distribution, *, extra: str) -> list[str]:
    """Arguments for pip that install a distribution from where it came here."""
    extras = {name.lower() for name in distribution.metadata.get_all("Provides-Extra") or ()}
    bracket = f"[{extra}]" if extra.lower() in extras else ""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    url = urlsplit(origin.get("url", ""))
    if not origin:
        return [f"{distribution.name}{bracket}=={distribution.version}"]
    if "dir_info" not in origin or url.scheme != "file":
        return [f"{distribution.name}{bracket} @ {origin['url']}"]
    folder = f"{url2pathname(url.path)}{bracket}"
    return ["--editable", folder] if origin["dir_info"].get("editable") else [folder]


def python_for(plugin: Plugin) -> str:
    """The interpreter that a plugin's code runs with.

    Raises:
        PluginError: Where its environment is not built.
    """
    return environment(plugin.environment).python if plugin.environment else sys.executable


def surroundings(*, foreign: bool) -> dict[str, str]:
    """The variables that a child inherits; those about our own interpreter stay with us."""
    if not foreign:
        return dict(os.environ)
    return {
        **{name: value for name, value in os.environ.items() if name not in _OURS_ALONE},
        "PYTHONNOUSERSITE": "1",
    }
