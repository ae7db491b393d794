"""Find plugins, hash their code, and ask what they bring, without importing any of them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panelbench import environments
from panelbench.errors import PluginError, unknown
from panelbench.loader import Plugin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GROUP = "panelbench"
_CORE = (
    *("accounting", "binning", "bounds", "coders", "composition", "conversions", "data"),
    *("extension", "flatten", "grid", "loader", "privacy", "release", "schema", "score", "worker"),
)
"""Harness modules that can change a release or a score; part of every key."""
_AUDIT = ("audit", "auditor", "evidence", "neighbors", "traces")
"""Harness modules that can change what an audit finds; part of its key."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a plugin said of itself.

    Attributes:
        components: Its components, as in `loader.describe`.
        choices: For each choice asked about, its facts or an "error".
        error: Why the plugin is unavailable, or empty.
        unbuilt: Whether that is because its environment has to be built first.
    """

    components: list[dict[str, Any]] = field(default_factory=list)
    choices: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""
    unbuilt: bool = False


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What the results of a plugin depend on, as its interpreter sees it.

    Attributes:
        code: Hash of the plugin's code.
        core: Hash of the harness modules that can change a release.
        harness: Hash of all harness modules.
        versions: Installed versions of what it requires, and of Python.
    """

    code: str
    core: str
    harness: str
    versions: dict[str, str]


def installed(files: Iterable[str | Path] = ()) -> dict[str, Plugin]:
    """All plugins by name: those with an entry point, and the given Python files.

    Raises:
        PluginError: Where two plugins have the same name, or a file is missing.
    """
    plugins: dict[str, Plugin] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        dist = point.dist
        plugin = Plugin(
            name=point.name,
            target=point.module,
            distribution=dist.name if dist else "",
            version=dist.version if dist else "",
            environment=environments.named_by(dist) if dist else "",
        )
        other = plugins.get(point.name)
        if other is not None and other.target != plugin.target:
            raise PluginError(
                f"Two plugins are called '{point.name}': {other.target} of {other.distribution} "
                f"and {plugin.target} of {plugin.distribution}; uninstall one of them."
            )
        plugins[point.name] = plugin
    for file in files:
        path = Path(file).expanduser().resolve()
        name = path.stem.replace("_", "-").lower()
        if not path.is_file():
            raise PluginError(f"The plugin file '{file}' does not exist; check the path.")
        if name in plugins and plugins[name].target == str(path):
            continue
        if name in plugins:
            raise PluginError(
                f"The file '{file}' and an installed plugin are both called '{name}'; rename it."
            )
        plugins[name] = Plugin(name=name, target=str(path), is_file=True)
    return dict(sorted(plugins.items()))


def _digest(paths: Iterable[tuple[str, Path]]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(paths):
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def code_hash(plugin: Plugin) -> str:
    """Hash of every file in the plugin's top-level package, or of its file and what lies beside it.

    For a file, modules in its folder that it imports count too, and what they import there.
    """
    if plugin.is_file:
        return _digest((path.name, path) for path in _imported_beside(Path(plugin.target)))
    top = plugin.target.split(".", 1)[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return "missing"
    if not spec.submodule_search_locations:
        return _digest([("file", Path(spec.origin or ""))])
    files = [
        (str(path.relative_to(root)), path)
        for root in map(Path, spec.submodule_search_locations)
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    return _digest(files)


def _imports(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports."""
    names: set[str] = set()
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return names  # importing it will say so
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".", 1)[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".", 1)[0])
    return names


def _imported_beside(file: Path) -> set[Path]:
    found, queue = {file}, [file]
    while queue:
        for name in _imports(queue.pop()):
            beside = {file.parent / f"{name}.py", *(file.parent / name).rglob("*.py")}
            fresh = {path for path in beside if path.is_file()} - found
            found |= fresh
            queue.extend(fresh)
    return found


@functools.cache
def core_hash() -> str:
    """Hash of the harness modules that can change a release."""
    here = Path(__file__).parent
    return _digest([(name, here / f"{name}.py") for name in _CORE])


@functools.cache
def audit_hash() -> str:
    """Hash of the harness modules that can change what an audit finds."""
    here = Path(__file__).parent
    return _digest([(name, here / f"{name}.py") for name in _AUDIT])


def versions(plugin: Plugin) -> dict[str, str]:
    """Installed versions of what a plugin requires, followed to the end, and of Python.

    For a file, what it and the modules beside it import.
    """
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    queue = [plugin.distribution, "panelbench"] if plugin.distribution else ["panelbench"]
    if plugin.is_file:
        owners = importlib.metadata.packages_distributions()
        for path in _imported_beside(Path(plugin.target)):
            queue += [owner for name in _imports(path) for owner in owners.get(name, ())]
    while queue:
        name = re.sub(r"[-_.]+", "-", queue.pop()).lower()
        if name in found:
            continue
        try:
            dist = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found[name] = dist.version
        for requirement in dist.requires or ():
            needed = re.match(r"[A-Za-z0-9._-]+", requirement)
            if needed and ("extra ==" not in requirement or dist.name == plugin.distribution):
                queue.append(needed[0])
    return dict(sorted(found.items()))


def _identity_here(plugin: Plugin) -> Identity:
    return Identity(
        code=code_hash(plugin),
        core=core_hash(),
        harness=_all_core_hash(),
        versions=versions(plugin),
    )


def identity(plugin: Plugin) -> Identity:
    """What the plugin's results depend on; asked of the interpreter it runs with.

    Raises:
        PluginError: Where its environment is not built, or does not answer.
    """
    if not plugin.environment:
        return _identity_here(plugin)
    child = subprocess.run(
        [environments.python_for(plugin), "-m", "panelbench.catalog"],
        input=json.dumps(dataclasses.asdict(plugin)),
        capture_output=True,
        text=True,
        check=False,
        env=environments.surroundings(foreign=True),
    )
    try:
        return Identity(**json.loads(child.stdout))
    except (ValueError, TypeError) as error:
        last = child.stderr.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        raise PluginError(
            f"its environment '{plugin.environment}' does not answer: {last[0]}; run "
            f"`panelbench env build {plugin.environment}`"
        ) from error


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "panelbench"


def _read_cache(path: Path) -> Answer | None:
    try:
        return Answer(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _write_cache(path: Path, answer: Answer) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(dataclasses.asdict(answer)), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a cache that cannot be written only costs time


def ask(plugin: Plugin, choices: Sequence[dict[str, Any]] = ()) -> Answer:
    """What the plugin brings, and whether `choices` (kind, name, params) are valid.

    The plugin is imported in a child; the answer is cached under the hash of its code, the
    versions of its requirements and the question. An error is never cached.
    """
    question = {"plugin": dataclasses.asdict(plugin), "choices": list(choices)}
    try:
        python = environments.python_for(plugin)
        known_as = identity(plugin)
    except PluginError as error:
        return Answer(error=str(error), unbuilt=True)
    of = [question, known_as.code, known_as.harness, known_as.versions]
    key = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()
    cached = _cache_folder() / f"{plugin.name}-{key[:32]}.json"
    if (known := _read_cache(cached)) is not None:
        return known
    child = subprocess.run(
        [python, "-m", "panelbench.loader"],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
        env=environments.surroundings(foreign=bool(plugin.environment)),
    )
    try:
        reply = json.loads(child.stdout)
    except ValueError:
        tail = child.stderr.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        return Answer(error=f"importing it ended the process: {tail[0]}")
    answer = Answer(**reply)
    if not answer.error and all("error" not in choice for choice in answer.choices):
        _write_cache(cached, answer)
    return answer


@functools.cache
def _all_core_hash() -> str:
    return _digest([(p.name, p) for p in Path(__file__).parent.glob("*.py")])


def ask_all(plugins: Iterable[Plugin]) -> dict[str, Answer]:
    """`ask` of each plugin, children side by side."""
    known = list(plugins)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return dict(zip([p.name for p in known], pool.map(ask, known), strict=True))


def split_name(name: str, kind: str, plugins: dict[str, Plugin]) -> tuple[Plugin, str]:
    """The plugin and short name that a full or unique short name means.

    Raises:
        PluginError: Where nothing, or more than one thing, has that name.
    """
    if "/" in name:
        plugin, short = name.split("/", 1)
        if plugin not in plugins:
            raise PluginError(unknown("plugin", plugin, plugins))
        return plugins[plugin], short
    answers = ask_all(plugins.values())
    full = {
        f"{owner}/{component['name']}": plugins[owner]
        for owner, answer in answers.items()
        for component in answer.components
        if component["component"] == kind
    }
    matches = [candidate for candidate in full if candidate.split("/", 1)[1] == name]
    if not matches:
        raise PluginError(unknown(kind, name, full))
    if len(matches) > 1:
        raise PluginError(f"The {kind} '{name}' is ambiguous; write {' or '.join(matches)}.")
    return full[matches[0]], name


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(_identity_here(Plugin(**json.load(sys.stdin))))))  # noqa: T201 - the answer
