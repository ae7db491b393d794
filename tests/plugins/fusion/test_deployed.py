"""The deployed loop: one window in numpy, equal to the rollout that was trained."""

import ast
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import panelbench_fusion
from panelbench import Budget, Split
from panelbench.testing import tiny_streams
from panelbench_fusion import online, training
from panelbench_fusion.channel import LiveChannel
from panelbench_fusion.deployed import Window
from panelbench_fusion.estimator import Regularisation
from panelbench_fusion.feature import Feature
from panelbench_fusion.ledger import Ledger
from panelbench_fusion.listener import Exported, Listener

BUDGET = Budget.renyi_dp(2.0, 1.5)
FEATURE = Feature.of(tiny_streams().schema, count_weight=0.6, values=("speed",))


def trained(width):
    """A system with weights that are all in use."""
    ready = online.prepare(
        tiny_streams().for_mechanism(),
        FEATURE,
        Regularisation(shrinkage=0.9, ridge=0.1),
        BUDGET,
        online.Shape(rank=6, memory=8, width=width, start="open-loop"),
        rng=np.random.default_rng(3),
    )
    how = training.Pathwise(batch=8, estimator_rate=1e-2, policy_rate=1e-2)
    training.train_pathwise(
        ready.system, ready.train, ready.judge, how, updates=3, generator=ready.generator
    )
    system = ready.trained()
    for module in (system.policy, system.estimator):
        for name, parameter in module.named_parameters():
            if name != "schedule":
                parameter.data.mul_(3).add_(0.05)
    return system


@pytest.fixture(scope="module")
def sums():
    data = tiny_streams()
    test = data.episodes(Split.TEST)
    return FEATURE.sums(data.observations[test], data.present[test])


@pytest.mark.parametrize("width", [8, 0], ids=["policy", "schedule"])
def test_a_window_step_by_step_is_the_rollout_with_the_same_noise(width, sums):
    system = trained(width)
    estimates, charges = online.fuse(system, sums[:1], draws=1, rng=np.random.default_rng(5))
    window = Window(Exported.of(system), rng=np.random.default_rng(5))
    found = [window.step(step) for step in sums[0]]
    np.testing.assert_allclose(found, estimates[0, 0], rtol=1e-9)
    np.testing.assert_allclose(window.ledger.charged, charges[0, 0], rtol=1e-9, atol=1e-12)
    assert np.ptp(charges[0, 0]) > 0


def test_p30_a_window_is_released_once(sums):
    """Failed when the live channel did not count its steps."""
    window = Window(Exported.of(trained(8)), rng=np.random.default_rng(0))
    for step in sums[0]:
        window.step(step)
    with pytest.raises(RuntimeError, match="released once"):
        window.step(sums[0][-1])


def test_p15_the_listener_runs_on_outputs_and_gains_alone():
    """Importing `feature` into `listener` failed it."""
    source = Path(panelbench_fusion.__file__).with_name("listener.py").read_text()
    found = [
        getattr(node, "module", None) or node.names[0].name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    types = {"torch", "panelbench_fusion.rollout"}  # of what is exported
    assert set(found) == {"__future__", "dataclasses", "math", "typing", "numpy"} | types
    rng = np.random.default_rng(1)
    listener = Listener(Exported.of(trained(8)))
    for _ in range(20):
        gain = listener.ask()
        assert np.isfinite(listener.hear(gain, rng.normal(size=2)))


def test_p03_p12_the_live_channel_applies_what_the_ledger_charges():
    """Failed when the live channel applied the gain that was asked for."""
    ledger = Ledger(1.5, l2_sensitivity=1.0, paths=())
    channel = LiveChannel(ledger, steps=4, rng=np.random.default_rng(0))
    noise = np.random.default_rng(0).standard_normal((4, 2))
    sums = np.array([10.0, 20.0])
    for k, asked in enumerate((1.0, np.inf, 1e9, 1e9)):
        output, gain = channel.step(asked, sums)
        np.testing.assert_allclose((output - noise[k]) / sums, gain, atol=1e-12)
        assert gain**2 == pytest.approx(float(ledger.charged[k]), abs=1e-12)
    assert sum(Fraction(float(charge)) for charge in ledger.charged) <= Fraction(1.5)
