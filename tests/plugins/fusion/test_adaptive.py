"""Adaptive spending; P-numbers are those of the paper's list of mistakes.

Each test of a privacy mistake says in its docstring how it was seen to fail.
"""

import ast
import dataclasses
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

import panelbench_fusion
from panelbench import Budget, NeighboringRelation, PrivacyUnit, Split
from panelbench.accounting import excess
from panelbench.testing import tiny_streams
from panelbench_fusion import online, ppo, training
from panelbench_fusion.adaptive import Adaptive, UniformLearnt
from panelbench_fusion.adaptive_ppo import AdaptivePpo
from panelbench_fusion.channel import OnlineChannel
from panelbench_fusion.estimator import (
    Regularisation,
)
from panelbench_fusion.feature import Feature
from panelbench_fusion.ledger import Ledger
from panelbench_fusion.policy import GainPolicy, PublicState, share_of
from panelbench_fusion.rollout import ReleaseChannel, TrainingChannel
from panelbench_fusion.warmstart import wishes

BUDGET = Budget.renyi_dp(2.0, 1.5)
STEPS = 20
TRAINED = pytest.mark.parametrize("mechanism", [Adaptive, AdaptivePpo, UniformLearnt])
SHAPE = online.Shape(rank=6, memory=8, width=8, start="open-loop")
FEATURE = Feature.of(tiny_streams().schema, count_weight=0.6, values=("speed",))


def run(mechanism, dataset, budget=BUDGET, seed=0):
    return mechanism.release(dataset.for_mechanism(), budget, rng=np.random.default_rng(seed))


def prepared(dataset=None, budget=BUDGET, shape=SHAPE, updates=3):
    """A system whose policy depends on the outputs for certain."""
    data = tiny_streams() if dataset is None else dataset
    ready = online.prepare(
        data.for_mechanism(),
        FEATURE,
        Regularisation(shrinkage=0.9, ridge=0.1),
        budget,
        shape,
        rng=np.random.default_rng(3),
    )
    how = training.Pathwise(batch=8, estimator_rate=1e-2, policy_rate=1e-2)
    training.train_pathwise(
        ready.system, ready.train, ready.judge, how, updates=updates, generator=ready.generator
    )
    with torch.no_grad():
        ready.system.policy.net[-1].weight.mul_(50)
    return ready


@pytest.fixture(scope="module")
def system():
    return prepared().trained()


def other_reports(seed):
    """Sums of four windows."""
    return np.random.default_rng(seed).uniform(0, 60, (4, STEPS, 2))


class Replay:
    """Runs a channel, then answers with outputs that were set before."""

    def __init__(self, channel, outputs):
        self.channel, self.outputs = channel, outputs

    def step(self, k, asked):
        _, gains = self.channel.step(k, asked)
        return torch.as_tensor(self.outputs[..., k, :]), gains


class Leaky(OnlineChannel):
    """Applies half the gain where many sensors report."""

    def step(self, k, asked):
        return super().step(k, np.where(self._sums[:, k, 0] > 30, 0.5, 1.0) * asked)


def replayed(system, sums, outputs, kind=OnlineChannel):
    paths = (3, len(sums))
    ledger = Ledger(system.total, l2_sensitivity=system.l2_sensitivity, paths=paths)
    channel = ReleaseChannel(kind(sums, ledger, rng=np.random.default_rng(0)))
    with torch.no_grad():
        trace = system.rollout(Replay(channel, outputs), paths)
    return torch.stack(trace.gains, -1).numpy(), np.stack(ledger.charged, -1)


def test_p01_with_equal_outputs_gains_and_charges_are_bit_identical_whatever_was_reported(system):
    """The channel `Leaky`, whose gain looks at the sums, fails it, and is kept as a control."""
    outputs = np.random.default_rng(4).normal(0, 3, (3, 4, STEPS, 2))
    one = replayed(system, other_reports(1), outputs)
    two = replayed(system, other_reports(2), outputs)
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])
    leaks = [replayed(system, other_reports(seed), outputs, Leaky)[0] for seed in (1, 2)]
    assert (leaks[0] != leaks[1]).any()


def test_p01_gains_do_depend_on_earlier_outputs_and_on_no_later_ones(system):
    """Scaling the gain by the output of its own step failed it."""
    outputs = np.random.default_rng(4).normal(0, 3, (3, 4, STEPS, 2))
    changed = outputs.copy()
    changed[..., 8:, :] += 5
    before, after = (replayed(system, other_reports(1), z)[0] for z in (outputs, changed))
    np.testing.assert_array_equal(before[..., :9], after[..., :9])
    assert (before[..., 9:] != after[..., 9:]).any()


WILD = [math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-320, -1e-200, 0.0, -0.0]


@pytest.mark.parametrize(("total", "sensitivity"), [(1.5, 1.0), (0.1, 0.7), (7.3e-9, 3.1)])
def test_p03_no_policy_whatsoever_makes_the_exact_sum_of_charges_exceed_the_budget(
    total, sensitivity
):
    """Ten thousand policies; rounding a charge to nearest, or no gain down, failed it."""
    rng = np.random.default_rng(5)
    paths, steps = 10_000, 8
    ledger = Ledger(total, l2_sensitivity=sensitivity, paths=(paths,))
    scale = math.sqrt(total) / sensitivity
    spent, charged = [Fraction(0)] * paths, [Fraction(0)] * paths
    unit = Fraction(sensitivity)
    for _ in range(steps):
        asked = scale * rng.normal(0, 10 ** rng.uniform(-3, 2, paths), paths)
        all_left = np.sqrt(ledger.left) / sensitivity
        asked = np.where(rng.random(paths) < 0.2, all_left * (1 + 2.0**-52), asked)
        wild = rng.random(paths) < 0.2
        asked[wild] = rng.choice(WILD, wild.sum())
        gains = ledger.charge(asked)
        assert (ledger.left >= 0).all()
        for path in np.flatnonzero(gains):
            cost, charge = (Fraction(gains[path]) * unit) ** 2, Fraction(ledger.charged[-1][path])
            assert cost <= charge
            spent[path] += cost
            charged[path] += charge
    assert max(spent) <= max(charged) <= Fraction(total)
    assert float(max(spent)) == pytest.approx(total, rel=1e-9)  # and some policies spend it all


def test_p04_a_wish_that_is_not_finite_gives_no_gain():
    """Without the check for finite values an infinite wish took all that was left."""
    ledger = Ledger(1.0, l2_sensitivity=1.0, paths=(4,))
    gains = ledger.charge(np.array([math.nan, math.inf, -math.inf, 0.5]))
    np.testing.assert_array_equal(gains, [0, 0, 0, 0.5])
    np.testing.assert_array_equal(ledger.left[:3], 1.0)


def test_p09_twice_the_sensitivity_is_charged_four_times():
    """Charging the squared gain without the sensitivity failed it."""
    charged = []
    for sensitivity in (1.0, 2.0):  # tanh features: add-or-remove-one, replace-one
        ledger = Ledger(1.0, l2_sensitivity=sensitivity, paths=())
        ledger.charge(np.array(0.25))
        charged.append(float(ledger.charged[0]))
    assert charged[1] == pytest.approx(4 * charged[0], rel=1e-12)


def test_p11_the_gain_that_is_applied_is_charged_not_the_one_the_policy_meant(system):
    """Scaling output and gain after the charge failed it."""
    generator = torch.Generator().manual_seed(1)

    def explore(wish):
        return wish + torch.randn(wish.shape, generator=generator, dtype=wish.dtype)

    sums = other_reports(1)
    ledger = Ledger(system.total, l2_sensitivity=1.0, paths=(2, 4))
    channel = ReleaseChannel(OnlineChannel(sums, ledger, rng=np.random.default_rng(0)))
    with torch.no_grad():
        trace = system.rollout(channel, (2, 4), explore=explore)
    charged, gains = np.stack(ledger.charged, -1), torch.stack(trace.gains, -1).numpy()
    np.testing.assert_allclose(charged, gains**2, rtol=1e-12)
    _, meant = online.fuse(system, sums, draws=2, rng=np.random.default_rng(0))
    assert (np.abs(charged - meant) > 1e-3 * meant).any()


class Silent:
    """A source of noise that is silent."""

    def standard_normal(self, shape):
        return np.zeros(shape)


def test_p12_the_gain_that_multiplies_the_sum_is_the_gain_that_is_charged():
    """Multiplying by `asked` instead of the clipped gain failed it."""
    sums = other_reports(1)
    ledger = Ledger(1.5, l2_sensitivity=1.0, paths=(3, 4))
    channel = OnlineChannel(sums, ledger, rng=Silent())
    rng = np.random.default_rng(2)
    for k in range(STEPS):
        outputs, gains = channel.step(k, rng.uniform(0, 1, (3, 4)))
        np.testing.assert_allclose(outputs / sums[:, k], gains[..., None] + 0 * outputs)
        np.testing.assert_allclose(ledger.charged[-1], gains**2, rtol=1e-12)
    assert np.stack(ledger.charged).sum(0).max() <= 1.5


class Poisoned(OnlineChannel):
    """Has no sums: any use of them raises."""

    def __init__(self, ledger):
        super().__init__(None, ledger, rng=None)

    def step(self, k, asked):
        gains = self._ledger.charge(asked)
        return np.ones((*gains.shape, 2)), gains


def test_p15_policy_and_estimator_run_without_the_private_object(system):
    """Adding 0 times the sums to the policy's wish failed it."""
    ledger = Ledger(system.total, l2_sensitivity=1.0, paths=(2, 4))
    with torch.no_grad():
        trace = system.rollout(ReleaseChannel(Poisoned(ledger)), (2, 4))
    assert torch.isfinite(torch.stack(trace.estimates)).all()
    fields = {field.name: field.type for field in dataclasses.fields(PublicState)}
    assert set(fields) == {"k", "steps", "left", "level", "doubt", "surprise", "memory"}
    assert set(fields.values()) <= {"int", "torch.Tensor"}


@TRAINED
def test_p16_nothing_that_is_trained_or_normalised_depends_on_test_windows(mechanism):
    """Fitting the closed form on all windows failed it."""
    data = tiny_streams()
    present = data.present.copy()
    present[data.episodes(Split.TEST), :, ::2] = False
    seen = np.where(present[..., None], data.observations, np.nan)
    other = dataclasses.replace(data, present=present, observations=seen)
    small = mechanism(updates=2, feature_updates=5, rank=4, draws=1)
    one, two = run(small, data), run(small, other)
    assert one.info == two.info
    assert one.guarantee == two.guarantee
    assert (one.estimate != two.estimate).any()
    weights = [prepared(dataset).system.policy.state_dict() for dataset in (data, other)]
    for name in weights[0]:
        assert torch.equal(weights[0][name], weights[1][name])


def test_p17_once_the_budget_is_spent_outputs_do_not_depend_on_the_data():
    """A floor of 1e-3 under the gain failed it."""
    outputs = []
    for seed in (1, 2):
        ledger = Ledger(1.5, l2_sensitivity=1.0, paths=(2, 4))
        channel = OnlineChannel(other_reports(seed), ledger, rng=np.random.default_rng(9))
        channel.step(0, np.full((2, 4), 1e9))
        ledger.left[:] = 0.0
        outputs.append([channel.step(k, np.full((2, 4), 1e9))[0] for k in range(1, STEPS)])
    np.testing.assert_array_equal(outputs[0], outputs[1])


@pytest.mark.parametrize("reports", [0.0, 1e4])
def test_p18_all_steps_are_released_whatever_is_reported(system, reports):
    """Leaving the loop after large outputs failed it."""
    sums = np.full((4, STEPS, 2), reports)
    estimate, charged = online.fuse(system, sums, draws=2, rng=np.random.default_rng(0))
    assert estimate.shape == charged.shape == (2, 4, STEPS)


def test_p25_the_windows_of_training_validation_and_test_are_disjoint():
    """Taking validation windows from all known ones failed it."""
    data = tiny_streams()
    numbered = dataclasses.replace(
        data, state=np.arange(data.state.size, dtype=float).reshape(data.state.shape)
    )
    train, validation = online.known_splits(numbered, FEATURE)
    test = numbered.state[data.episodes(Split.TEST)]
    parts = [set(part.ravel()) for part in (train.state, validation.state, test)]
    assert sum(map(len, parts)) == data.state.size == len(set.union(*parts))
    none = np.where(data.split == Split.VALIDATION, Split.TRAIN, data.split)
    train, validation = online.known_splits(dataclasses.replace(numbered, split=none), FEATURE)
    assert len(validation) > 0
    assert not set(train.state.ravel()) & set(validation.state.ravel())


SOURCE = Path(panelbench_fusion.__file__).parent


def imports(module):
    tree = ast.parse((SOURCE / f"{module}.py").read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {getattr(node, "module", None) or node.names[0].name for node in found}


def test_p28_the_gain_policy_and_the_ledger_can_reach_nothing_private():
    """Importing `feature` into `policy` failed it."""
    assert imports("policy") == {"__future__", "dataclasses", "math", "torch"}
    assert imports("ledger") == {"__future__", "numpy"}
    assert not imports("belief") & {"panelbench", "panelbench_fusion.feature"}


def test_p28_a_sum_meets_noise_and_a_charge_in_the_channel_alone():
    """Adding noise in `online.fuse` failed it."""
    for module in ("adaptive", "online", "rollout", "policy", "belief", "networks", "ledger"):
        assert "standard_normal" not in (SOURCE / f"{module}.py").read_text()
    calls = [
        node.func.attr
        for node in ast.walk(ast.parse((SOURCE / "channel.py").read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    assert calls.index("charge") < len(calls) - 1 - calls[::-1].index("standard_normal")


def test_p29_checkpoints_are_judged_on_validation_windows_under_noise_of_their_own():
    """Drawing new noise at each look failed it."""
    ready = prepared(updates=1)
    judge = ready.judge
    assert judge.look() == judge.look()
    _, validation = online.known_splits(tiny_streams().for_mechanism(), FEATURE)
    np.testing.assert_allclose(judge._state[: len(validation)], validation.state, rtol=1e-6)


def test_p29_the_best_checkpoint_on_validation_is_kept():
    """Keeping the last one failed it."""
    ready = online.prepare(
        tiny_streams().for_mechanism(),
        FEATURE,
        Regularisation(shrinkage=0.9, ridge=0.1),
        BUDGET,
        SHAPE,
        rng=np.random.default_rng(3),
    )
    how = training.Pathwise(batch=8, estimator_rate=0.3, policy_rate=0.3)  # far too fast
    training.train_pathwise(
        ready.system, ready.train, ready.judge, how, updates=6, generator=ready.generator
    )
    assert ready.judge.look() == ready.judge.best == min(ready.judge.history)
    assert ready.judge.history[-2] > ready.judge.best


def test_p30_a_step_is_released_once():
    """Without the count of steps a second output came out uncharged for the first ledger."""
    ledger = Ledger(1.5, l2_sensitivity=1.0, paths=(2, 4))
    channel = OnlineChannel(other_reports(1), ledger, rng=np.random.default_rng(0))
    channel.step(0, np.full((2, 4), 0.1))
    for k in (0, 2):
        with pytest.raises(RuntimeError, match=f"Step {k} cannot be released"):
            channel.step(k, np.full((2, 4), 0.1))


@TRAINED
@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_p27_all_of_the_budget_is_spent_on_every_path_and_no_more(mechanism, relation):
    """Leaving the last share at sigmoid(u) failed it."""
    budget = dataclasses.replace(BUDGET, relation=relation)
    release = run(mechanism(updates=2, draws=3), tiny_streams(), budget)
    total = release.spent.sum(-1)
    assert release.spent.shape == release.estimate.shape
    assert (total <= 1.5).all()
    assert total.min() == pytest.approx(1.5, rel=1e-9)
    assert excess(release.guarantee, budget, unit=PrivacyUnit.SENSOR_TRAJECTORY) is None


def test_without_a_wish_the_shares_are_those_of_the_uniform_schedule():
    left, spent = 1.0, []
    for k in range(STEPS):
        spent.append(left * float(share_of(torch.tensor(0.0, dtype=torch.float64), k, STEPS)))
        left -= spent[-1]
    np.testing.assert_allclose(spent, 1 / STEPS)


def test_wishes_spend_the_shares_they_were_made_from():
    shares = np.random.default_rng(1).dirichlet(np.ones(STEPS))
    left = 1.0
    for k, wish in enumerate(wishes(shares)):
        spent = left * float(share_of(torch.tensor(wish), k, STEPS))
        assert spent == pytest.approx(shares[k], rel=1e-6)
        left -= spent


def test_training_and_release_run_the_same_loop(system):
    sums = other_reports(1)
    noise = np.random.default_rng(0).standard_normal((STEPS, 1, 4, 2))
    estimate, charged = online.fuse(system, sums, draws=1, rng=np.random.default_rng(0))
    channel = TrainingChannel(
        torch.as_tensor(sums[None]), torch.as_tensor(noise).permute(1, 2, 0, 3)
    )
    with torch.no_grad():
        trace = system.rollout(channel, (1, 4))
    np.testing.assert_allclose(torch.stack(trace.estimates, -1), estimate, rtol=1e-6)
    np.testing.assert_allclose(torch.stack(trace.gains, -1) ** 2, charged, atol=1e-9)


def test_a_policy_of_no_width_is_its_schedule():
    policy = GainPolicy(torch.arange(3.0), memory=2, width=0)
    np.testing.assert_array_equal(policy.wish(1, torch.zeros(5, 7)).detach(), 1.0)


def test_advantages_are_those_of_the_definition():
    rng = np.random.default_rng(1)
    rewards, values = (
        torch.as_tensor(rng.normal(size=(3, 5))),
        torch.as_tensor(rng.normal(size=(3, 5))),
    )
    after = torch.cat([values[:, 1:], torch.zeros(3, 1)], dim=1)
    surprise = rewards + after - values
    expected = [sum(ppo.LAMBDA ** (j - k) * surprise[:, j] for j in range(k, 5)) for k in range(5)]
    found = ppo.advantages(rewards, values)
    np.testing.assert_allclose(found, torch.stack(expected, 1), rtol=1e-12)


def test_ppo_learns_to_spend_where_it_is_rewarded():
    ready = online.prepare(
        tiny_streams().for_mechanism(),
        FEATURE,
        Regularisation(shrinkage=0.9, ridge=0.1),
        BUDGET,
        dataclasses.replace(SHAPE, start="uniform"),
        rng=np.random.default_rng(3),
    )
    generator = torch.Generator().manual_seed(1)
    learner = ppo.Learner(ready.system, ready.train.state, generator)
    state = torch.zeros(256, STEPS)
    means = []
    for _ in range(15):
        sums = torch.zeros(256, STEPS, 2)
        with torch.no_grad():
            trace = ready.system.rollout(
                TrainingChannel(sums, sums), (256,), explore=learner.explore()
            )
        means.append(float(torch.stack(trace.wishes[:-1]).mean()))
        trace.estimates = [wish * 5 - 10 for wish in trace.wishes]  # no error at u = 2
        learner.learn(learner.experience(trace, state), left=1.0)
    assert means[0] == pytest.approx(0, abs=0.1)
    assert means[-1] > 0.3


def test_importing_the_plugin_does_not_import_torch():
    code = "import sys, panelbench_fusion.plugin; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "wrong",
    [{"updates": 0}, {"batch": 0}, {"width": 0}, {"start": "best"}, {"rank": 0}, {"feature": "x"}],
)
def test_a_wrong_parameter_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Adaptive(**wrong)


def test_an_unlimited_budget_is_not_supported():
    assert "nonprivate" in Adaptive().supports(tiny_streams().schema, Budget.unlimited())
