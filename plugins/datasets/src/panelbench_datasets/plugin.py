"""What this plugin registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench import hookimpl
from panelbench_datasets.hmm import Hmm, HmmTypes
from panelbench_datasets.mimic_iv_ed import MimicIvEd
from panelbench_datasets.mimic_like import MimicLike
from panelbench_datasets.nyc311 import Nyc311
from panelbench_datasets.nyc311_like import Nyc311Like
from panelbench_datasets.physionet2012 import Physionet2012
from panelbench_datasets.queue_sim import QueueSim
from panelbench_datasets.traffic_sim import TrafficSim
from panelbench_datasets.us101 import Us101

if TYPE_CHECKING:
    from collections.abc import Iterable

    from panelbench import DatasetSource


@hookimpl
def register_datasets() -> Iterable[type[DatasetSource]]:
    """The simulators, then the loaders of real data."""
    return [
        Hmm,
        HmmTypes,
        TrafficSim,
        QueueSim,
        MimicLike,
        Nyc311Like,
        Us101,
        Physionet2012,
        MimicIvEd,
        Nyc311,
    ]
