"""Uniform fusion and its references; P-numbers are those of the paper's list of mistakes."""

import dataclasses
import math
import re

import numpy as np
import pytest
from scipy.stats import norm

from panelbench import (
    Budget,
    Column,
    ColumnKind,
    DataError,
    NeighboringRelation,
    PrivacyUnit,
    Role,
    Schema,
    SensorStreams,
    Split,
)
from panelbench.accounting import excess, settle
from panelbench_datasets import files, windows
from panelbench_fusion import channel, estimator, gain, pipeline
from panelbench_fusion.feature import Feature
from panelbench_fusion.references import Nonprivate, Prior
from panelbench_fusion.uniform import Uniform

STEPS = 30
RELATIONS = pytest.mark.parametrize("relation", list(NeighboringRelation))
BUDGET = Budget.renyi_dp(2.0, 1.5)
SCHEMA = Schema(
    columns=(
        Column(name="position", unit="m", lower=0.0, upper=400.0),
        Column(name="speed", unit="m/s", lower=0.0, upper=40.0),
    ),
    unit=PrivacyUnit.SENSOR_TRAJECTORY,
    min_rows=STEPS,
    max_rows=STEPS,
    state=Column(name="density", unit="veh/km"),
)


def made(rng, *, windows=(160, 30, 30), steps=STEPS, mean=60.0, variance=100.0, step=0.5):
    """Counts that follow an autoregression; every vehicle reports, the state is the count / 0.4."""
    total, factor = sum(windows), math.sqrt(1 - step / variance)
    level = rng.normal(0.0, math.sqrt(variance), total)
    counts = np.empty((total, steps))
    for k in range(steps):
        counts[:, k] = mean + level
        level = factor * level + rng.normal(0.0, math.sqrt(step), total)
    counts = np.maximum(np.rint(counts), 0).astype(int)
    present = np.arange(counts.max()) < counts[..., None]
    seen = np.where(
        present[..., None],
        np.stack([rng.uniform(0, 400, present.shape), rng.uniform(2, 12, present.shape)], axis=-1),
        np.nan,
    )
    return SensorStreams(
        schema=dataclasses.replace(SCHEMA, min_rows=steps, max_rows=steps),
        observations=seen,
        present=present,
        state=counts / 0.4,
        split=np.repeat(list(Split), windows),
        step_seconds=0.2,
    )


@pytest.fixture(scope="module")
def data():
    return made(np.random.default_rng(1))


def run(mechanism, dataset, budget=BUDGET, seed=0):
    return mechanism.release(dataset.for_mechanism(), budget, rng=np.random.default_rng(seed))


def error(dataset, release):
    truth = dataset.state[dataset.episodes(Split.TEST)]
    return float(np.mean((release.estimate - truth) ** 2))


def with_test_reports(dataset, observations, present):
    """The dataset with other reports in its first test window."""
    window = dataset.episodes(Split.TEST)[0]
    sensors = present.shape[-1]
    seen = np.full((*dataset.present.shape[:2], sensors, 2), np.nan)
    there = np.zeros((*dataset.present.shape[:2], sensors), dtype=bool)
    seen[:, :, : dataset.present.shape[-1]] = dataset.observations
    there[:, :, : dataset.present.shape[-1]] = dataset.present
    seen[window], there[window] = observations, present
    return dataclasses.replace(dataset, observations=seen, present=there)


def crowd(sensors):
    """A window with `sensors` vehicles at every step."""
    seen = np.broadcast_to(np.array([200.0, 30.0]), (STEPS, sensors, 2))
    return seen, np.ones((STEPS, sensors), dtype=bool)


@pytest.mark.parametrize("extra", [0, 1000])
def test_p02_no_vehicle_or_a_thousand_leave_gains_and_ledger_unchanged_and_all_steps_emitted(extra):
    """Failed when the band of values was taken over all windows, protected ones too."""
    data = made(np.random.default_rng(1), windows=(40, 6, 4))
    before = run(Uniform(draws=2), data)
    seen, there = crowd(1200)
    there = there & (np.arange(1200) < extra)
    seen = np.where(there[..., None], seen, np.nan)
    after = run(Uniform(draws=2), with_test_reports(data, seen, there))
    assert after.guarantee == before.guarantee
    assert after.info == before.info
    np.testing.assert_array_equal(after.spent, before.spent)
    assert after.estimate.shape == before.estimate.shape
    # only the changed window is estimated differently
    np.testing.assert_array_equal(after.estimate[:, 1:], before.estimate[:, 1:])


def test_p02_a_report_that_is_not_a_number_or_off_the_segment_counts_as_absent():
    """Failed when a position off the segment was let through."""
    feature = Feature.of(SCHEMA, count_weight=0.6, values=("speed",))
    bad = np.array([[np.nan, 5.0], [5.0, np.nan], [np.inf, 5.0], [5.0, -np.inf], [-1.0, 5.0]])
    f = feature.contributions(bad, np.ones(len(bad), dtype=bool))
    np.testing.assert_array_equal(f, 0.0)


def test_a_speed_beyond_its_public_bounds_is_clipped():
    feature = Feature.of(SCHEMA, count_weight=0.6, values=("speed",))
    f = feature.contributions(np.array([[5.0, 400.0], [5.0, -3.0]]), np.ones(2, dtype=bool))
    np.testing.assert_allclose(f, [[0.6, 0.8], [0.6, 0.0]])


def reports(rng, count):
    """Random reports and the corners of what can be reported, with values out of range."""
    corners = np.array([[p, v] for p in (-1, 0, 400, 401) for v in (-1e9, 0, 40, 1e300)], float)
    seen = np.concatenate([corners, rng.uniform([-50, -20], [450, 60], (count, 2))])
    return seen, np.concatenate([np.ones(len(corners), bool), rng.random(count) < 0.8])


@RELATIONS
@pytest.mark.parametrize("weight", [0.05, 0.3, 0.6, 1.0])
def test_p05_one_sensor_moves_the_sum_by_at_most_the_declared_norm(relation, weight):
    """Failed when the weights of values were not normalised."""
    feature = Feature.of(SCHEMA, count_weight=weight, values=("speed",))
    seen, there = reports(np.random.default_rng(2), 1000)
    f = feature.contributions(seen, there)
    absent = feature.contributions(seen[:1], np.zeros(1, dtype=bool))
    np.testing.assert_array_equal(absent, 0.0)
    norms = np.linalg.norm(f, axis=-1)
    assert norms.max() <= 1.0
    if relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        largest = norms.max()
    else:
        f = np.concatenate([f, absent])
        largest = np.linalg.norm(f[:, None] - f, axis=-1).max()
    assert largest <= feature.l2_sensitivity(relation)
    assert largest == pytest.approx(feature.l2_sensitivity(relation))  # and it is attained


def test_p06_changing_one_sensor_leaves_the_contributions_of_the_others_bit_identical():
    """Failed when the mean over sensors was taken off the values."""
    feature = Feature.of(SCHEMA, count_weight=0.6, values=("speed",))
    rng = np.random.default_rng(3)
    seen, there = reports(rng, 50)
    before = feature.contributions(seen, there)
    for sensor in range(len(seen)):
        other, present = seen.copy(), there.copy()
        other[sensor], present[sensor] = rng.uniform(0, 40, 2), ~there[sensor]
        after = feature.contributions(other, present)
        rest = np.arange(len(seen)) != sensor
        np.testing.assert_array_equal(after[rest], before[rest])


def test_p07_a_device_that_reports_twice_in_a_step_has_one_slot_and_one_contribution():
    """Failed when a row of the recording, not a vehicle, had a slot: twice the contribution."""
    rng = np.random.default_rng(11)
    frame = np.repeat(np.arange(20), 6)
    rows = {"frame": frame, "vehicle": np.tile(np.arange(6), 20)}
    rows |= {"position": rng.uniform(0, 400, 120), "speed": rng.uniform(0, 30, 120)}
    again = {name: np.repeat(values, 2) for name, values in rows.items()}
    again["position"] = again["position"] + np.tile([0.0, 1.0], 120) * (again["position"] < 399)
    windowing = windows.Windowing(
        steps=4, segment_m=400.0, lanes=1, reporters=1.0, gap_seconds=0.0, blocked=False
    )
    feature = Feature.of(SCHEMA, count_weight=0.6, values=("speed",))
    sums = []
    for one in (rows, again):
        data = windows.sensor_streams(
            [windows.Period(**one, frames=20)],
            windowing,
            rng=np.random.default_rng(0),
            title="A recording",
            repairs=files.Repairs(),
        )
        assert data.present.shape[-1] == 6
        sums.append(feature.sums(data.observations, data.present))
    np.testing.assert_allclose(sums[0], sums[1], atol=1e-12)


@pytest.mark.parametrize("density", [0, 1, 500])
def test_p08_a_vehicle_adds_exactly_its_contribution_at_any_density(density):
    """Failed when the sum was divided by the number of sensors."""
    feature = Feature.of(SCHEMA, count_weight=0.6, values=("speed",))
    seen, there = crowd(density + 1)
    own = feature.contributions(seen[:, -1:], there[:, -1:])[:, 0]
    without = there & (np.arange(density + 1) < density)
    added = feature.sums(seen, there) - feature.sums(seen, without)
    np.testing.assert_allclose(added, own, atol=1e-9)


@RELATIONS
def test_p10_what_a_step_is_charged_is_the_largest_shift_of_its_mean_by_brute_force(relation):
    """Failed when a sensitivity of 0.9 was declared."""
    feature = Feature.of(SCHEMA, count_weight=0.6, values=("speed",))
    budget = Budget.renyi_dp(4.0, 1.5, relation=relation)
    sensitivity = feature.l2_sensitivity(relation)
    gains = gain.constant_gains(budget, steps=STEPS, l2_sensitivity=sensitivity)
    charged = gain.spent(gains, l2_sensitivity=sensitivity)
    f = feature.contributions(*reports(np.random.default_rng(4), 800))
    change = f if relation is NeighboringRelation.ADD_OR_REMOVE_ONE else f[:, None] - f
    largest = (np.linalg.norm(gains[0] * change, axis=-1) ** 2).max()
    assert 4.0 / 2 * largest == pytest.approx(4.0 / 2 * charged[0], rel=1e-9)
    assert 4.0 / 2 * charged[0] == pytest.approx(1.5 / STEPS, rel=1e-9)


def test_p13_noise_is_standard_normal_and_independent_across_all_axes():
    """Failed when one noise served all draws."""
    # 200 x 40 x 30 x 2 = 480,000 numbers; five standard errors: false alarm 6e-7 each
    rng = np.random.default_rng(5)
    sums = rng.uniform(0, 100, (40, STEPS, 2))
    gains = np.full(STEPS, 0.1)
    outputs = channel.fused(sums, gains, draws=200, rng=rng)
    noise = outputs - gains[:, None] * sums
    count = noise.size
    assert abs(noise.mean()) < 5 / math.sqrt(count)
    assert abs(noise.var() - 1) < 5 * math.sqrt(2 / count)
    for axis in range(4):
        here = np.moveaxis(noise, axis, 0)
        correlation = np.mean(here[1:] * here[:-1])
        assert abs(correlation) < 5 / math.sqrt(here[1:].size)
    again = channel.fused(sums, gains, draws=200, rng=rng)
    assert not np.isin(again[0, 0], outputs).any()


def test_p14_the_noise_does_not_depend_on_the_data():
    """Failed when the noise grew with the sums."""
    gains = np.full(STEPS, 0.1)
    noise = [
        channel.fused(sums, gains, draws=3, rng=np.random.default_rng(6)) - 0.1 * sums
        for sums in (np.zeros((4, STEPS, 2)), np.full((4, STEPS, 2), 1e3))
    ]
    np.testing.assert_allclose(noise[0], noise[1], atol=1e-12)


def test_p15_gains_and_filter_work_without_the_protected_reports(data):
    """Failed when the band of values was taken over all windows."""
    poisoned = np.array(data.observations)
    poisoned[data.episodes(Split.TEST)] = 1e300
    worse = dataclasses.replace(data.for_mechanism(), observations=poisoned)

    def planned(dataset):
        return pipeline.plan(
            dataset,
            count_weight=None,
            values=("speed",),
            gains_of=lambda _: np.full(STEPS, 0.1),
            noise_variance=1.0,
        )

    one, two = planned(data.for_mechanism()), planned(worse)
    np.testing.assert_array_equal(one.filter.weight, two.filter.weight)
    assert one.how == two.how


def test_p20_the_distinguishability_of_the_worst_neighbors_is_the_charged_mu():
    """Failed when gains were 5 % larger than what was charged for."""
    feature = Feature.of(SCHEMA, count_weight=0.6, values=("speed",))
    gains = gain.constant_gains(BUDGET, steps=STEPS, l2_sensitivity=1.0)
    worst = np.broadcast_to(np.array([5.0, 40.0]), (STEPS, 1, 2))
    signal = gains[:, None] * feature.sums(worst, np.ones((STEPS, 1), dtype=bool))
    rng = np.random.default_rng(7)
    runs = 100_000
    ratio = []
    for vehicles in (0.0, 1.0):
        sums = feature.sums(worst, np.full((STEPS, 1), bool(vehicles)))
        outputs = channel.fused(sums[None], gains, draws=runs, rng=rng)[:, 0]
        ratio.append(np.einsum("dks,ks->d", outputs, signal))
    threshold = np.quantile(ratio[0], 0.9)
    power = np.mean(ratio[1] > threshold)
    mu = norm.ppf(power) - norm.ppf(0.1)
    assert mu == pytest.approx(math.sqrt(1.5), rel=0.02)  # 2 % is more than 5 standard errors


def test_p22_the_note_prints_the_guarantee_of_a_window_and_of_a_trip(data):
    """Failed when a trip was said to cost what a window costs."""
    note = run(Uniform(draws=1, trip_windows=3), data).guarantee.note
    assert "Per window of 6 s: (2, 1.5)-RDP = 0.75-zCDP = 1.225-GDP = (5.545, 1e-05)-DP" in note
    assert "W = 3: (2, 4.5)-RDP = 2.25-zCDP = 2.121-GDP" in note


@RELATIONS
@pytest.mark.parametrize(
    "budget",
    [Budget.renyi_dp(5.0, 0.7), Budget.approximate_dp(2.0, 1e-6), Budget.zero_concentrated_dp(0.3)],
    ids=["rdp", "dp", "zcdp"],
)
def test_p27_uniform_spends_all_of_its_budget_and_no_more(data, budget, relation):
    """Failed when the budget was divided by one step more, and for gains 5 % too large."""
    budget = dataclasses.replace(budget, relation=relation)
    release = run(Uniform(draws=1), data, budget)
    assert excess(release.guarantee, budget, unit=PrivacyUnit.SENSOR_TRAJECTORY) is None
    found = settle(release.guarantee, delta=budget.delta, alpha=budget.alpha)
    assert release.spent.sum() == pytest.approx(found.mu**2, rel=1e-12)
    for name in ("epsilon", "b_g", "rho"):
        stated = getattr(budget, name)
        if stated is not None:
            assert getattr(found, name) == pytest.approx(stated, rel=1e-9)


def test_error_falls_with_the_budget_and_lies_between_nonprivate_and_prior(data):
    errors = [
        error(data, run(Uniform(), data, Budget.renyi_dp(2.0, b_g))) for b_g in (0.1, 0.5, 2, 8)
    ]
    ends = [error(data, run(m, data, Budget.unlimited())) for m in (Prior(), Nonprivate())]
    assert [ends[0], *errors, ends[1]] == sorted([ends[0], *errors, ends[1]], reverse=True)
    assert ends[1] < 1e-6  # at full reporting the count is the state


def test_at_full_reporting_the_error_is_that_of_the_kalman_filter():
    # 400 training windows; the Riccati recursion of the true model, in (veh/km)^2
    dataset = made(np.random.default_rng(8), windows=(400, 50, 200))
    release = run(Uniform(count_weight=1.0, draws=10), dataset)
    factor, variance, total = 1 - 0.5 / 100, 100.0, 0.0
    for k in range(STEPS):
        prior = variance if k == 0 else factor * variance + 0.5
        variance = prior / (1 + 1.5 / STEPS * prior)
        total += variance
    # rounding to whole vehicles adds 1/12 to the state's variance and to the outputs
    best = total / STEPS / 0.4**2
    assert error(dataset, release) == pytest.approx(best, rel=0.08)


def test_the_filter_is_causal(data):
    plan = pipeline.plan(
        data.for_mechanism(),
        count_weight=0.6,
        values=("speed",),
        gains_of=lambda _: np.full(STEPS, 0.1),
        noise_variance=1.0,
    )
    weight = plan.filter.weight
    later = np.arange(STEPS)[None, :] > np.arange(STEPS)[:, None]
    assert not weight[later].any()
    assert weight[~later].any()


def test_the_filter_is_the_conditional_mean_of_every_prefix():
    rng = np.random.default_rng(9)
    state, sums = rng.normal(size=(50, 4)), rng.normal(size=(50, 4, 2))
    sums[..., 0] += state
    moments = estimator.sample_moments(state, sums)
    gains = np.array([1.0, 0.5, 2.0, 0.1])
    found = estimator.lmmse(moments, gains, noise_variance=1.0, ridge=0.0)
    outputs = gains[:, None] * sums
    for k in range(4):
        known = (outputs - outputs.mean(axis=0))[:, : k + 1].reshape(50, -1)
        against = known.T @ known / 50 + np.eye(known.shape[1])
        weight = np.linalg.solve(against, known.T @ (state - state.mean(axis=0))[:, k] / 50)
        expected = state[:, k].mean() + known @ weight
        np.testing.assert_allclose(found.estimates(outputs)[:, k], expected, atol=1e-9)


def test_the_expected_error_is_the_mean_over_noise(data):
    test = data.episodes(Split.TEST)
    release = run(Uniform(draws=400, count_weight=0.6), data)
    plan = pipeline.plan(
        data,
        count_weight=0.6,
        values=("speed",),
        gains_of=lambda _: gain.constant_gains(BUDGET, steps=STEPS, l2_sensitivity=1.0),
        noise_variance=1.0,
        relation=BUDGET.relation,
    )
    sums = plan.feature.sums(data.observations[test], data.present[test])
    expected = plan.filter.expected_mse(data.state[test], sums, plan.gains, 1.0)
    assert error(data, release) == pytest.approx(expected, rel=0.02)


def test_roles_and_guarantees_say_what_each_row_is(data):
    prior = run(Prior(by_step=True), data, Budget.unlimited())
    assert (Prior.role, Nonprivate.role, Uniform.role) == (
        Role.BASELINE,
        Role.REFERENCE,
        Role.PRIVATE,
    )
    assert prior.guarantee.ledger == ()
    assert excess(prior.guarantee, BUDGET, unit=PrivacyUnit.SENSOR_TRAJECTORY) is None
    free = run(Nonprivate(), data, Budget.unlimited())
    assert excess(free.guarantee, BUDGET, unit=PrivacyUnit.SENSOR_TRAJECTORY) is not None
    assert np.isinf(free.spent).all()
    public = " ".join(run(Uniform(draws=1), data).guarantee.public)
    assert re.search("training and validation windows are not protected", public)


def test_a_schema_without_the_value_column_or_an_unlimited_budget_is_not_supported():
    assert Uniform().supports(SCHEMA, BUDGET) is None
    assert "headway" in Uniform(values=("headway",)).supports(SCHEMA, BUDGET)
    assert "nonprivate" in Uniform().supports(SCHEMA, Budget.unlimited())
    lanes = Column(name="lane", kind=ColumnKind.CATEGORICAL, categories=("1", "2"))
    schema = dataclasses.replace(SCHEMA, columns=(*SCHEMA.columns, lanes))
    assert "lane" in Nonprivate(values=("lane",)).supports(schema, BUDGET)


def test_counting_alone_needs_no_value_column(data):
    release = run(Uniform(values=(), draws=1), data)
    assert release.info["count_weight"] == 1.0


@pytest.mark.parametrize(
    "wrong", [{"draws": 0}, {"count_weight": 0.0}, {"count_weight": 1.5}, {"trip_windows": 0}]
)
def test_a_wrong_parameter_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Uniform(**wrong)


def test_streams_without_training_windows_are_refused(data):
    bare = dataclasses.replace(data, split=np.where(data.split == Split.TRAIN, 2, data.split))
    with pytest.raises(DataError, match="train windows"):
        run(Uniform(), bare)


def test_validation_windows_are_not_needed(data):
    none = dataclasses.replace(data, split=np.where(data.split == Split.VALIDATION, 0, data.split))
    assert error(none, run(Uniform(), none)) < 100
