"""Records drawn from a graphical model, with as little randomness as rounding needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from panelbench_marginals.junction import Clique, cells, positions

if TYPE_CHECKING:
    from panelbench_marginals.graphical import Model


def drawn(model: Model, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw records whose marginals over cliques are those of the model up to rounding.

    Cliques follow their parents. Among the records that agree on a separator, values are placed at
    equal quantiles from one random offset, in random order: each value is as frequent as the model
    says up to one record, and each record alone follows the model.

    Returns:
        Values, shape (count, variables).
    """
    records = np.zeros((count, len(model.sizes)), dtype=np.int64)
    for component in model.components:
        for i, clique in enumerate(component.cliques):
            known: Clique = () if i == 0 else component.separator(i)
            fresh = tuple(v for v in clique if v not in known)
            table = np.bincount(
                positions(clique, (*known, *fresh), model.sizes), weights=component.beliefs[i]
            ).reshape(cells(known, model.sizes), -1)
            codes = _placed(table, _group(records, known, model), rng)
            shape = [model.sizes[v] for v in fresh]
            for v, values in zip(fresh, np.unravel_index(codes, shape), strict=True):
                records[:, v] = values
    return records


def _group(records: np.ndarray, known: Clique, model: Model) -> np.ndarray:
    if not known:
        return np.zeros(len(records), dtype=np.int64)
    columns = tuple(records[:, v] for v in known)
    group: np.ndarray = np.ravel_multi_index(columns, [model.sizes[v] for v in known])
    return group


def _placed(table: np.ndarray, group: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each record a column of `table`, by the distribution in the row of its group."""
    order = rng.permutation(len(group))
    order = order[np.argsort(group[order], kind="stable")]
    members = np.bincount(group, minlength=len(table))
    rank = np.arange(len(group)) - np.repeat(np.cumsum(members) - members, members)
    here = group[order]
    quantile = (rank + rng.random(len(table))[here]) / members[here]
    cumulative = np.maximum(table, 0.0).cumsum(axis=1)
    mass = cumulative[:, -1:]
    even = np.arange(1, table.shape[1] + 1) / table.shape[1]
    cumulative = np.where(mass > 0, cumulative / np.where(mass > 0, mass, 1.0), even)
    cumulative[:, -1] = 1.0
    codes = np.empty(len(group), dtype=np.int64)
    flat = (cumulative + np.arange(len(table))[:, None]).ravel()
    found = np.searchsorted(flat, quantile + here, side="right") - here * table.shape[1]
    codes[order] = np.clip(found, 0, table.shape[1] - 1)
    return codes


def lengths_of(present: np.ndarray, least: int) -> np.ndarray:
    """Rows of each record: the leading steps in which at least half of the columns hold a value.

    Args:
        present: Share of the columns that hold one, shape (records, steps).
        least: Public smallest length.
    """
    leading: np.ndarray = np.logical_and.accumulate(present >= 0.5, axis=1).sum(axis=1)
    lengths: np.ndarray = np.maximum(leading, min(least, present.shape[1]))
    return lengths
