"""A13, and the exam: every installed plugin takes it, ours and a stranger's."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import pytest

from panelbench import USER_TABLES, Metric, Scale, Score
from panelbench.catalog import installed
from panelbench.extension import Metric as AnyMetric
from panelbench.loader import Plugin, load
from panelbench.testing import examine, examine_component, questions

if TYPE_CHECKING:
    from collections.abc import Mapping

OURS = ("datasets", "example", "fusion", "marginals", "metrics", "path", "references", "smartnoise")
HERE = {name: plugin for name, plugin in installed().items() if not plugin.environment}
"""Those that run with this interpreter; others take the exam with theirs, in their own tests."""


def asked():
    for name, plugin in HERE.items():
        for (kind, _), cls in load(plugin).items():
            for fact, question in questions(cls):
                yield pytest.param(question, id=f"{name}: {kind} {fact}")


def test_all_our_plugins_are_installed():
    assert set(OURS) <= set(installed())


@pytest.mark.parametrize("question", list(asked()))
def test_a13_every_component_passes_the_exam(question):
    assert not question()


def test_a13_every_metric_declares_direction_range_and_perfect_value():
    for plugin in HERE.values():
        for cls in load(plugin).values():
            if issubclass(cls, AnyMetric):
                assert cls.components
                for scale in cls.components.values():
                    assert scale.lower <= scale.perfect <= scale.upper


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backwards(Metric):
    """Prefers damage."""

    name = "backwards"
    kind = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {"gap": Scale(perfect=20.0)}

    def score(self, reference, release, *, rng):
        gap = abs(reference.test["level"].mean() - release.frame["level"].mean())
        yield Score(component="gap", value=20.0 - gap)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Undeclared(Backwards):
    """Gives what it did not declare."""

    name = "undeclared"

    def score(self, reference, release, *, rng):
        yield Score(component="other", value=0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Imperfect(Backwards):
    """Is not perfect where it says so."""

    name = "imperfect"
    components: ClassVar[Mapping[str, Scale]] = {"gap": Scale(perfect=0.0)}

    def score(self, reference, release, *, rng):
        yield Score(component="gap", value=1e-6)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffScale(Backwards):
    """Leaves the range that it declares."""

    name = "off-scale"
    components: ClassVar[Mapping[str, Scale]] = {"gap": Scale(upper=0.1)}

    def score(self, reference, release, *, rng):
        gap = abs(reference.test["level"].mean() - release.frame["level"].mean())
        yield Score(component="gap", value=gap)


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (Backwards, "as the copy was damaged more"),
        (Undeclared, "Declare 'other'"),
        (Imperfect, "'gap' is 1e-06 for the reference itself, declared is 0.0"),
        (OffScale, "lies outside 0.0 to 0.1"),
    ],
)
def test_the_exam_fails_a_metric_that_breaks_its_promise(cls, said):
    assert any(said in finding.why for finding in examine_component(cls) if not finding.passed)


def test_the_exam_fails_mechanisms_that_overspend_or_refuse_everything(request):
    path = request.config.rootpath / "tests" / "fixtures_plugin.py"
    found = load(Plugin(name="fx", target=str(path), is_file=True))
    failed = [
        finding.fact
        for name in ("fx-overspend", "fx-other-relation", "fx-picky", "fx-raise", "fx-ok")
        for finding in examine_component(found["mechanism", name])
        if not finding.passed
    ]
    assert "fx-overspend keeps within its budget under add-or-remove-one." in failed
    assert "fx-other-relation keeps within its budget under replace-one." in failed
    assert "fx-picky runs on a tiny panel." in failed
    assert "fx-raise runs on a tiny panel." in failed
    assert "fx-ok says what it does, and documents each parameter." in failed
    assert "fx-ok keeps within its budget under add-or-remove-one." not in failed


def test_the_exam_says_why_a_plugin_does_not_load():
    (finding,) = examine(Plugin(name="none", target="no_such_module.plugin"))
    assert not finding.passed
    assert "ModuleNotFoundError" in finding.why
