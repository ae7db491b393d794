"""`panelbench new`: a plugin package that passes its own tests and the exam as it stands."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from panelbench.errors import PluginError

if TYPE_CHECKING:
    from pathlib import Path

BASES = {"mechanism": "Mechanism", "dataset": "DatasetSource", "metric": "Metric"}


def render(template: str, kind: str, name: str) -> str:
    """One template file with the names filled in."""
    module = name.replace("-", "_")
    text = files("panelbench").joinpath("templates", f"{template}.txt").read_text(encoding="utf-8")
    return Template(text).substitute(
        name=name,
        kind=kind,
        base=BASES[kind],
        cls="".join(word.capitalize() for word in name.split("-")),
        module=module,
        package=f"panelbench_{module}",
    )


def write(kind: str, name: str, folder: Path) -> list[Path]:
    """Write the package.

    Args:
        kind: "mechanism", "dataset" or "metric".
        name: Of plugin and component, lower-case words joined by hyphens.
        folder: Where it goes; it must not exist.

    Returns:
        The files.

    Raises:
        PluginError: For a name that is none, or a folder that is there.
    """
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise PluginError(
            f"'{name}' is no name for a plugin; use lower-case words joined by hyphens, such as "
            f"'my-{kind}'."
        )
    if folder.exists():
        raise PluginError(f"'{folder}' is there already; give another name or another --to.")
    package = folder / "src" / f"panelbench_{module}"
    texts = {
        folder / "pyproject.toml": render("pyproject", kind, name),
        folder / "README.md": render("readme", kind, name),
        package / "__init__.py": f'"""A {kind} for Panelbench."""\n',
        package / "py.typed": "",
        package / "plugin.py": render("plugin", kind, name),
        package / f"{module}.py": render(kind, kind, name),
        folder / "tests" / f"test_{module}.py": render(f"test_{kind}", kind, name),
    }
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PluginError(f"'{folder}' cannot be written: {error.strerror}.") from error
    return list(texts)
