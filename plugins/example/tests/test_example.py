"""What a plugin's own tests may look like: the exam, and what is special about it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from panelbench import Budget, Column
from panelbench.loader import Plugin
from panelbench.testing import examine, tiny_tables
from panelbench_example.histograms import Histograms
from panelbench_example.mean_error import MeanError
from panelbench_example.walks import Walks

PLUGIN = Plugin(name="example", target="panelbench_example.plugin")


@pytest.mark.parametrize("finding", examine(PLUGIN), ids=str)
def test_the_plugin_passes_the_exam(finding):
    assert finding.passed, finding.why


def test_a_larger_budget_gives_a_smaller_error():
    walks = Walks(users=2000).load(rng=np.random.default_rng(0))
    errors = []
    for epsilon in (0.005, 8.0):
        budget = Budget.approximate_dp(epsilon, 1e-5)
        scores = [
            next(MeanError().score(walks, release, rng=np.random.default_rng(0))).value
            for seed in range(5)
            for release in [Histograms().release(walks, budget, rng=np.random.default_rng(seed))]
        ]
        errors.append(np.mean(scores))
    assert errors[1] < errors[0]


def test_a_column_without_bounds_is_refused_in_words():
    schema = tiny_tables().schema
    open_ended = dataclasses.replace(schema, columns=(Column(name="height", unit="m"),))
    budget = Budget.approximate_dp(1.0, 1e-5)
    assert Histograms().supports(schema, budget) is None
    assert Histograms().supports(open_ended, budget) == "column 'height' has no public bounds"


@pytest.mark.parametrize(("cls", "params"), [(Histograms, {"bins": 1}), (Walks, {"users": 1})])
def test_a_wrong_parameter_is_refused_in_words(cls, params):
    with pytest.raises(ValueError, match="must be at least"):
        cls(**params)
