"""What the commands about plugins and data files do and print."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from panelbench.errors import PluginError, unknown

if TYPE_CHECKING:
    import argparse

    from panelbench.loader import Plugin

KINDS = ("dataset", "mechanism", "metric")


def plugins_of(options: argparse.Namespace) -> dict[str, Plugin]:
    """Every plugin there is, those given with --plugin too."""
    from panelbench.catalog import installed

    return installed(options.plugin)


def say(line: str) -> None:
    """Print for people, beside the answer."""
    from panelbench.progress import tell

    tell(sys.stderr, f"{line}\n")


def print_json(value: Any) -> None:  # noqa: ANN401 - JSON
    """Print for programs."""
    print(json.dumps(value, indent=1, sort_keys=True, default=str))


def list_plugins(options: argparse.Namespace) -> int:
    """`panelbench list`."""
    from panelbench.catalog import ask_all

    plugins = plugins_of(options)
    answers = ask_all(plugins.values())
    wrong = {name: answer for name, answer in answers.items() if answer.error}
    broken = {name: answer.error for name, answer in wrong.items() if not answer.unbuilt}
    if options.json:
        shown = ("component", "name", "kind", "summary", "role")
        print_json(
            {
                name: {
                    "version": plugins[name].version,
                    "error": answer.error,
                    "components": [
                        {key: component[key] for key in shown if key in component}
                        for component in answer.components
                    ],
                }
                for name, answer in answers.items()
            }
        )
    else:
        if not plugins:
            print("No plugin is installed; see plugins/README.md, or pass --plugin FILE.")
        for kind in KINDS:
            rows = [
                (f"{name}/{component['name']}", component["kind"], component["summary"])
                for name, answer in answers.items()
                for component in answer.components
                if component["component"] == kind
            ]
            width = max((len(row[0]) for row in rows), default=0)
            print(f"{kind}s" if rows else f"no {kind}s")
            for full, reads, summary in rows:
                print(f"  {full:{width}}  {reads:14}  {summary}")
        for name, answer in wrong.items():
            print(f"{'not ready' if answer.unbuilt else 'unavailable'}: {name}: {answer.error}")
    return 1 if broken and options.strict else 0


def describe(options: argparse.Namespace) -> int:
    """`panelbench describe NAME`."""
    from panelbench.catalog import ask_all

    plugins = plugins_of(options)
    owner = options.name.split("/", 1)[0] if "/" in options.name else None
    if owner is not None and owner not in plugins:
        raise PluginError(unknown("plugin", owner, plugins))
    answers = ask_all([plugins[owner]] if owner else plugins.values())
    known: dict[str, list[dict[str, Any]]] = {}
    for name, answer in answers.items():
        if answer.error and owner:
            raise PluginError(f"Plugin '{name}' is unavailable: {answer.error}")
        for component in answer.components:
            known.setdefault(f"{name}/{component['name']}", []).append(component)
    found = {
        full: components
        for full, components in known.items()
        if options.name in (full, full.split("/", 1)[1])
    }
    if not found:
        raise PluginError(unknown("component", options.name, known))
    if options.json:
        print_json(found)
        return 0
    for full, components in found.items():
        for component in components:
            print(f"{full} ({component['component']} of {component['kind']})\n")
            print(component["doc"])
            print("\nParameters and defaults:" if component["parameters"] else "\nNo parameters.")
            for name, value in component["parameters"].items():
                print(f"  {name} = {json.dumps(value)}")
    return 0


def check(options: argparse.Namespace) -> int:
    """`panelbench check [PLUGIN]`."""
    from panelbench.testing import examine_apart

    plugins = plugins_of(options)
    for name in options.names:
        if name not in plugins:
            raise PluginError(unknown("plugin", name, plugins))
    files = [name for name, plugin in plugins.items() if plugin.is_file]
    results = {}
    for name in options.names or files or list(plugins):
        say(f"Examining {name}")
        results[name] = examine_apart(plugins[name])
    if options.json:
        print_json({name: [vars(finding) for finding in r] for name, r in results.items()})
    else:
        for name, findings in results.items():
            for finding in findings:
                mark = "ok    " if finding.passed else "FAILED"
                print(f"{mark} {name}: {finding.fact}" + (f": {finding.why}" * bool(finding.why)))
    failed = sum(not finding.passed for r in results.values() for finding in r)
    say(f"{failed} of {sum(map(len, results.values()))} questions failed.")
    return 1 if failed else 0


def data(options: argparse.Namespace) -> int:
    """`panelbench data list|get|path [DATASET]`."""
    from panelbench import datafiles

    files = datafiles.listing(plugins_of(options), options.name)
    if options.action == "get":
        return datafiles.get(files, say=say)
    if options.json:
        print_json(files)
    elif options.action == "path":
        for file in files:
            print(file["where"])
    else:
        for file in files:
            print(f"{file['state']:8}  {file['dataset']:28}  {file['path']}")
            if file["state"] != "found":
                print(f"          {file['instructions']}")
        if not files:
            print("No dataset asked for reads files.")
    return 0


def env(options: argparse.Namespace) -> int:
    """`panelbench env list|build [NAME]`."""
    from panelbench import environments

    known = environments.every()
    if options.name is not None and options.name not in known:
        raise PluginError(unknown("environment", options.name, known))
    chosen = [e for name, e in known.items() if options.name in (None, name)]
    if options.action == "build":
        if options.name is None:
            raise PluginError(f"Name the environment to build: {' or '.join(known) or 'none yet'}.")
        for each in chosen:
            each.build(constraints=options.constraint, say=say)
    if options.json:
        rows = {e.name: {"state": e.state, "plugins": e.plugins} for e in chosen}
        print_json(rows)
        return 0
    for each in chosen:
        print(f"{each.name:16}  {each.state:11}  plugins: {', '.join(each.plugins)}")
    if not chosen:
        print("No installed plugin names an environment of its own.")
    return 0


def new(options: argparse.Namespace) -> int:
    """`panelbench new KIND NAME`."""
    from pathlib import Path

    from panelbench.scaffold import write

    folder = Path(options.to or options.name)
    for path in write(options.kind, options.name, folder):
        print(path)
    print(
        f"Now change the class, and:\n  pip install -e {folder}\n  panelbench check {options.name}"
        f"\n  pytest {folder}"
    )
    return 0
