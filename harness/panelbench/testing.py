"""The exam every plugin takes, ours and a stranger's.

`panelbench check PLUGIN` runs `examine_apart` and prints the findings. In a plugin's own tests:

    @pytest.mark.parametrize("finding", examine(plugin), ids=str)
    def test_the_plugin_passes_the_exam(finding):
        assert finding.passed, finding.why
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from panelbench import environments, loader
from panelbench.errors import PanelbenchError
from panelbench.exam import questions
from panelbench.panels import tiny, tiny_streams, tiny_tables, tiny_visits
from panelbench.record import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Finding",
    "examine",
    "examine_apart",
    "examine_component",
    "questions",
    "tiny",
    "tiny_streams",
    "tiny_tables",
    "tiny_visits",
]
_LOADS = "The plugin loads."
_ENDS = "The exam ends by itself."


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One question of the exam and its answer.

    Attributes:
        fact: What should be true, one sentence.
        passed: Whether it is.
        why: What was found instead and what to change, where it is not.
    """

    fact: str
    passed: bool
    why: str = ""

    def __str__(self) -> str:
        return self.fact


def examine(plugin: loader.Plugin) -> list[Finding]:
    """Put one plugin through the exam; imports it into this process."""
    return [_answered(fact, question) for fact, question in _exam(plugin)]


def examine_component(cls: type) -> list[Finding]:
    """Put one component through the questions for its kind."""
    return [_answered(fact, question) for fact, question in questions(cls)]


def examine_apart(plugin: loader.Plugin, *, seconds: float = 900) -> list[Finding]:
    """Put one plugin through the exam in processes of its own, whatever it does there.

    A question that ends its process has failed, and another process asks those after it.
    """
    until = time.monotonic() + seconds
    findings: list[Finding] = []
    while True:
        asked = _ENDS
        lines, why = _sitting(plugin, skip=len(findings), seconds=until - time.monotonic())
        for line in lines:
            if isinstance(line, str):
                asked = line
            else:
                findings.append(Finding(**line))
                asked = _ENDS
        if not asked:
            return findings
        late = time.monotonic() >= until
        why = f"It ran past {seconds:g} seconds." if late else f"It ended the process: {why}"
        findings.append(Finding(fact=asked, passed=False, why=one_line(why)))
        if late or asked in (_LOADS, _ENDS):
            return findings


def _sitting(plugin: loader.Plugin, *, skip: int, seconds: float) -> tuple[list[Any], str]:
    """What a process of `main` told, line by line, and the last that it said of its end."""
    try:
        child = subprocess.run(
            [environments.python_for(plugin), "-m", "panelbench.testing"],
            input=json.dumps([dataclasses.asdict(plugin), skip]),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:  # what it holds is bytes, whatever was asked for
        told, last = (error.stdout or b"").decode(), ""
    else:
        status = f"exit status {child.returncode}"
        told, last = child.stdout, (child.stderr.strip().splitlines() or [status])[-1]
    lines = []
    for line in told.splitlines():
        with contextlib.suppress(ValueError):  # the plugin wrote into the pipe
            lines.append(json.loads(line))
    return lines, last


def _exam(plugin: loader.Plugin) -> Iterator[tuple[str, Callable[[], str | None]]]:
    """Every question: whether the plugin loads, then what its components are asked."""
    components: dict[tuple[str, str], Any] = {}
    yield _LOADS, lambda: _loads(plugin, components)
    for cls in components.values():
        yield from questions(cls)


def _loads(plugin: loader.Plugin, components: dict[tuple[str, str], Any]) -> str | None:
    try:
        components.update(loader.load(plugin))
    except PanelbenchError as error:
        return str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an import can raise anything
        return f"{type(error).__name__} at {loader.last_frame(error, plugin)}: {error}"
    return None


def _answered(fact: str, question: Callable[[], str | None]) -> Finding:
    try:
        why = question() or ""
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the exam reports it all
        why = f"{type(error).__name__}: {error}"
    return Finding(fact=fact, passed=not why, why=why)


def main() -> None:
    """Examine the plugin described on standard input, but for as many questions as it says.

    Each question goes to the real standard output before it is asked, and its finding after it;
    an empty text ends them.
    """
    described, skip = json.load(sys.stdin)
    channel = os.dup(1)
    os.dup2(2, 1)  # what a plugin prints must not mix with the findings
    with os.fdopen(channel, "w", encoding="utf-8", buffering=1) as stream:
        for number, (fact, question) in enumerate(_exam(loader.Plugin(**described))):
            if number >= skip:
                print(json.dumps(fact), file=stream)
                print(json.dumps(vars(_answered(fact, question))), file=stream)
            elif fact == _LOADS:
                question()  # the others need what it loads
        print(json.dumps(""), file=stream)


if __name__ == "__main__":
    main()
