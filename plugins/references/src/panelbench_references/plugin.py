"""What this distribution registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench import hookimpl
from panelbench_references.llm_prompting import LlmPrompting
from panelbench_references.real_subsample import RealSubsample
from panelbench_references.schema_uniform import SchemaUniform

if TYPE_CHECKING:
    from panelbench import Mechanism


@hookimpl
def register_mechanisms() -> tuple[type[Mechanism], ...]:
    """All references of this distribution."""
    return (RealSubsample, SchemaUniform, LlmPrompting)
