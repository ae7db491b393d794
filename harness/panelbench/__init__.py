"""Panelbench: a benchmark harness for differentially private data about people over time.

Plugin authors need the names below and `panelbench.accounting`. They load on first use, so that
`panelbench --help` imports neither numpy nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from panelbench.data import (
        DataFile,
        Dataset,
        SensorStreams,
        Split,
        UserTables,
        data_directory,
    )
    from panelbench.errors import (
        BudgetError,
        DataError,
        GridError,
        PanelbenchError,
        PluginError,
        StoreError,
    )
    from panelbench.extension import DatasetSource, Mechanism, Metric, Role
    from panelbench.hookspecs import hookimpl
    from panelbench.privacy import (
        Budget,
        Established,
        Event,
        ExponentialEvent,
        GaussianEvent,
        Guarantee,
        LaplaceEvent,
        NeighboringRelation,
        Notion,
        PrivacyUnit,
        SampledGaussianEvent,
        ZeroConcentratedEvent,
    )
    from panelbench.release import Estimates, Release, SyntheticTables
    from panelbench.schema import SENSOR_STREAMS, USER_TABLES, Column, ColumnKind, Schema
    from panelbench.score import Direction, Panel, Scale, Score

_HOME = {
    "data": "DataFile Dataset SensorStreams Split UserTables data_directory",
    "errors": "BudgetError DataError GridError PanelbenchError PluginError StoreError",
    "extension": "DatasetSource Mechanism Metric Role",
    "hookspecs": "hookimpl",
    "privacy": (
        "Budget Established Event ExponentialEvent GaussianEvent Guarantee LaplaceEvent "
        "NeighboringRelation Notion PrivacyUnit SampledGaussianEvent ZeroConcentratedEvent"
    ),
    "release": "Estimates Release SyntheticTables",
    "schema": "SENSOR_STREAMS USER_TABLES Column ColumnKind Schema",
    "score": "Direction Panel Scale Score",
}
_MODULE = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "SENSOR_STREAMS",
    "USER_TABLES",
    "Budget",
    "BudgetError",
    "Column",
    "ColumnKind",
    "DataError",
    "DataFile",
    "Dataset",
    "DatasetSource",
    "Direction",
    "Established",
    "Estimates",
    "Event",
    "ExponentialEvent",
    "GaussianEvent",
    "GridError",
    "Guarantee",
    "LaplaceEvent",
    "Mechanism",
    "Metric",
    "NeighboringRelation",
    "Notion",
    "Panel",
    "PanelbenchError",
    "PluginError",
    "PrivacyUnit",
    "Release",
    "Role",
    "SampledGaussianEvent",
    "Scale",
    "Schema",
    "Score",
    "SensorStreams",
    "Split",
    "StoreError",
    "SyntheticTables",
    "UserTables",
    "ZeroConcentratedEvent",
    "data_directory",
    "hookimpl",
]


def __getattr__(name: str) -> object:
    """Import the module a public name lives in, on first use."""
    if name not in _MODULE:
        raise AttributeError(f"module 'panelbench' has no attribute '{name}'")
    return getattr(import_module(f"panelbench.{_MODULE[name]}"), name)
