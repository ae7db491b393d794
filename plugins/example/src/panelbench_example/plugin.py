"""What this plugin brings; the harness finds it through the entry point in pyproject.toml."""

from __future__ import annotations

from panelbench import DatasetSource, Mechanism, Metric, hookimpl
from panelbench_example.histograms import Histograms
from panelbench_example.mean_error import MeanError
from panelbench_example.walks import Walks


@hookimpl
def register_datasets() -> list[type[DatasetSource]]:
    """The datasets."""
    return [Walks]


@hookimpl
def register_mechanisms() -> list[type[Mechanism]]:
    """The mechanisms."""
    return [Histograms]


@hookimpl
def register_metrics() -> list[type[Metric]]:
    """The metrics."""
    return [MeanError]
