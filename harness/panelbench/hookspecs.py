"""The three hooks. A plugin implements those it needs and returns classes; work happens in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from panelbench.extension import DatasetSource, Mechanism, Metric

hookspec = pluggy.HookspecMarker("panelbench")
hookimpl = pluggy.HookimplMarker("panelbench")


@hookspec
def register_datasets() -> Iterable[type[DatasetSource]]:
    """Return the datasets that the plugin brings."""
    raise NotImplementedError  # a specification has no body


@hookspec
def register_mechanisms() -> Iterable[type[Mechanism]]:
    """Return the mechanisms that the plugin brings."""
    raise NotImplementedError  # a specification has no body


@hookspec
def register_metrics() -> Iterable[type[Metric]]:
    """Return the metrics that the plugin brings."""
    raise NotImplementedError  # a specification has no body
