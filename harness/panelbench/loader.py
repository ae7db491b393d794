"""Import one plugin and hold what it registers to the contract; runs in child processes.

The parent never imports a plugin: `catalog` starts this module as a child, writes a question to
its standard input and reads the answer, so a plugin that crashes, prints or is slow to import
harms nothing but itself.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pluggy

from panelbench import hookspecs
from panelbench.errors import PanelbenchError, PluginError, unknown
from panelbench.extension import DatasetSource, Mechanism, Metric, Role
from panelbench.schema import SENSOR_STREAMS, USER_TABLES

HOOKS: dict[str, tuple[str, type]] = {
    "dataset": ("register_datasets", DatasetSource),
    "mechanism": ("register_mechanisms", Mechanism),
    "metric": ("register_metrics", Metric),
}
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A plugin that could be loaded.

    Attributes:
        name: Entry-point name, or the stem of a file named with `--plugin`.
        target: Module to import, or the path of that file.
        is_file: Whether `target` is a path.
        distribution: Name of the installed distribution, empty for a file.
        version: Version of the distribution, empty for a file.
        environment: Name of the environment it runs in, empty for the harness's own.
    """

    name: str
    target: str
    is_file: bool = False
    distribution: str = ""
    version: str = ""
    environment: str = ""


def import_plugin(plugin: Plugin) -> Any:  # noqa: ANN401 - a module, whatever it holds
    """Import the plugin's module."""
    if not plugin.is_file:
        return importlib.import_module(plugin.target)
    name = f"panelbench_file_plugin_{plugin.name}"
    spec = importlib.util.spec_from_file_location(name, plugin.target)
    if spec is None or spec.loader is None:
        raise PluginError(f"'{plugin.target}' is not a Python file; name one that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    sys.path.insert(0, str(Path(plugin.target).parent))
    spec.loader.exec_module(module)
    return module


def load(plugin: Plugin) -> dict[tuple[str, str], type]:
    """Everything the plugin registers, by (kind of component, short name).

    Raises:
        PluginError: Where a hook is misspelt, or a class breaks the contract.
    """
    manager = pluggy.PluginManager("panelbench")
    manager.add_hookspecs(hookspecs)
    manager.register(import_plugin(plugin), name=plugin.name)
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        found = re.search(r"unknown hook '([^']+)'", str(error))
        known = [hook for hook, _ in HOOKS.values()]
        reason = unknown("hook", found[1], known) if found else str(error)
        raise PluginError(f"Plugin '{plugin.name}': {reason}") from error
    components: dict[tuple[str, str], type] = {}
    for kind, (hook, base) in HOOKS.items():
        for answer in getattr(manager.hook, hook)():
            if not isinstance(answer, Iterable):
                raise PluginError(
                    f"Plugin '{plugin.name}': {hook} must return a list of classes, got {answer!r}."
                )
            for cls in answer:
                check_class(cls, base, where=f"Plugin '{plugin.name}', {hook}")
                key = (kind, cls.name)
                if key in components:
                    raise PluginError(
                        f"Plugin '{plugin.name}' registers two {kind}s called '{cls.name}'; "
                        f"rename one."
                    )
                components[key] = cls
    if not components:
        raise PluginError(
            f"Plugin '{plugin.name}' registers nothing; mark a function with @hookimpl and call it "
            f"{' or '.join(hook for hook, _ in HOOKS.values())}."
        )
    return components


def check_class(cls: Any, base: type[Any], *, where: str) -> None:  # noqa: ANN401 - anything may come
    """Refuse a registered object that is not a well-formed component.

    Raises:
        PluginError: Naming the class and the line to change.
    """
    if not (inspect.isclass(cls) and issubclass(cls, base)):
        raise PluginError(f"{where}: {cls!r} is not a subclass of panelbench.{base.__name__}.")
    if abstract := sorted(getattr(cls, "__abstractmethods__", ())):
        raise PluginError(f"{where}: {cls.__name__} does not define {', '.join(abstract)}.")
    parameters = getattr(cls, "__dataclass_params__", None)
    if parameters is None or "__dataclass_fields__" not in vars(cls) or not parameters.frozen:
        raise PluginError(
            f"{where}: {cls.__name__} must be decorated with @dataclass(frozen=True, kw_only=True)."
        )
    if not isinstance(name := getattr(cls, "name", None), str) or not _NAME.fullmatch(name):
        raise PluginError(
            f"{where}: {cls.__name__}.name must be lower-case words and hyphens, got {name!r}."
        )
    for field in dataclasses.fields(cast("Any", cls)):
        if field.init and field.default is dataclasses.MISSING:
            if field.default_factory is not dataclasses.MISSING:
                continue
            raise PluginError(f"{where}: {cls.__name__}.{field.name} needs a default.")
    if base is Metric and not getattr(cls, "components", None):
        raise PluginError(f"{where}: {cls.__name__}.components must declare at least one Scale.")


def build(cls: type, params: dict[str, Any], *, what: str) -> Any:  # noqa: ANN401 - a component
    """Make a component from the parameters of a grid.

    Raises:
        PluginError: For an unknown parameter, with near matches, or a refused value.
    """
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    for name in params:
        if name not in known:
            raise PluginError(f"{what}: {unknown('parameter', name, known)}")
    for field in dataclasses.fields(cls):
        if field.name in params:
            _check_type(params[field.name], field.default, what=f"{what}: {field.name}")
    try:
        component = cls(
            **{name: tuple(v) if isinstance(v, list) else v for name, v in params.items()}
        )
    except PanelbenchError as error:
        raise PluginError(f"{what}: {error}") from error
    except (TypeError, ValueError) as error:
        raise PluginError(f"{what}: {error}") from error
    if component.kind not in (USER_TABLES, SENSOR_STREAMS):
        raise PluginError(
            f"{what}: kind must be '{USER_TABLES}' or '{SENSOR_STREAMS}', got {component.kind!r}."
        )
    return component


def _check_type(given: Any, default: Any, *, what: str) -> None:  # noqa: ANN401 - TOML
    """Refuse a value of another type than the default's; a whole number is a float too."""
    for kind in (bool, int, float, str):
        if type(default) is kind:
            accepted = (int, float) if kind is float else (kind,)
            if type(given) not in accepted:
                raise PluginError(f"{what} must be {kind.__name__}, got {given!r}.")


def describe(cls: type) -> dict[str, Any]:
    """What `list` and `describe` say of a component, JSON-able."""
    doc = inspect.getdoc(cls) or ""
    component = cast("Any", cls)()
    facts: dict[str, Any] = {
        "name": component.name,
        "summary": doc.split("\n", 1)[0],
        "doc": doc,
        "kind": component.kind,
        "parameters": parameters_of(component),
    }
    if isinstance(component, Mechanism):
        facts["role"] = Role(component.role)
    if isinstance(component, Metric):
        facts["components"] = {
            name: {key: str(value) for key, value in dataclasses.asdict(scale).items()}
            for name, scale in component.components.items()
        }
    if isinstance(component, DatasetSource):
        facts["files"] = [dataclasses.asdict(file) for file in component.files()]
    return facts


def parameters_of(component: Any) -> dict[str, Any]:  # noqa: ANN401 - a component
    """All parameters of a component, defaults included, in canonical JSON form."""
    values = {f.name: getattr(component, f.name) for f in dataclasses.fields(component) if f.init}
    try:
        return cast("dict[str, Any]", json.loads(json.dumps(values, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise PluginError(
            f"The parameters of '{component.name}' must be JSON-able, got {values!r}."
        ) from error


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Answer one question of the catalogue: what is there, and are these choices valid.

    The question names a plugin and a list of choices (kind, name, params); the answer has all its
    components and, for each choice, the full parameters or the error.
    """
    plugin = Plugin(**question["plugin"])
    components = load(plugin)
    resolved: list[dict[str, Any]] = []
    for choice in question["choices"]:
        kind, name = choice["kind"], choice["name"]
        what = f"{kind} '{plugin.name}/{name}'"
        try:
            if (kind, name) not in components:
                known = [short for other, short in components if other == kind]
                raise PluginError(f"Plugin '{plugin.name}': {unknown(kind, name, known)}")
            component = build(components[kind, name], choice["params"], what=what)
            facts = {"params": parameters_of(component), "reads": component.kind}
            if isinstance(component, Mechanism):
                facts["role"] = Role(component.role)
            if isinstance(component, DatasetSource):
                facts["files"] = [dataclasses.asdict(file) for file in component.files()]
            if isinstance(component, Metric):
                facts["components"] = list(component.components)
            resolved.append(facts)
        except PanelbenchError as error:
            resolved.append({"error": str(error)})
    return {
        "components": [
            {"component": kind, **describe(cls)} for (kind, _), cls in components.items()
        ],
        "choices": resolved,
    }


def last_frame(error: BaseException, plugin: Plugin) -> str:
    """Where in the plugin's own code an error came from, for one line of explanation."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if plugin.target.split(".", 1)[0] in f.filename] or frames[-1:]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "unknown line"


def main() -> None:
    """Read a question from standard input, write the answer to the real standard output."""
    channel = os.dup(1)
    os.dup2(2, 1)  # what a plugin prints while importing must not mix with the answer
    question = json.load(sys.stdin)
    try:
        reply = answer(question)
    except PanelbenchError as error:
        reply = {"error": str(error)}
    except BaseException as error:  # noqa: BLE001 - an import can raise anything, SystemExit too
        where = last_frame(error, Plugin(**question["plugin"]))
        reply = {"error": f"{type(error).__name__} at {where}: {error}"}
    with os.fdopen(channel, "w", encoding="utf-8") as stream:
        json.dump(reply, stream)


if __name__ == "__main__":
    main()
