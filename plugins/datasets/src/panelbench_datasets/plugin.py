"""What this plugin registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench import hookimpl
from panelbench_datasets.hmm import Hmm, HmmTypes
from panelbench_datasets.traffic_sim import TrafficSim

if TYPE_CHECKING:
    from collections.abc import Iterable

    from panelbench import DatasetSource


@hookimpl
def register_datasets() -> Iterable[type[DatasetSource]]:
    """The datasets of this plugin."""
    return [Hmm, HmmTypes, TrafficSim]
