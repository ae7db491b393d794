"""Fixed linear channels: schedules, matrices, their accountant and their bound."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from panelbench import Budget, NeighboringRelation, PrivacyUnit, Split
from panelbench.accounting import excess, settle
from panelbench.testing import tiny_streams
from panelbench_fusion import bound, channel, factor, intervals, pipeline, schedule
from panelbench_fusion.feature import Feature, first_visit
from panelbench_fusion.hold import Hold
from panelbench_fusion.linear import Channel
from panelbench_fusion.matrix import MatrixFusion, SquareRoot, Tree, dyadic_differences
from panelbench_fusion.model import Model
from panelbench_fusion.openloop import OpenLoop
from panelbench_fusion.smooth import Smooth
from panelbench_fusion.trigger import Trigger, triggered
from panelbench_fusion.uniform import Uniform

RELATIONS = pytest.mark.parametrize("relation", list(NeighboringRelation))
ADD, REPLACE = NeighboringRelation
BUDGET = Budget.renyi_dp(2.0, 1.5)
MECHANISMS = [
    OpenLoop(draws=2),
    Hold(draws=2, period=4),
    MatrixFusion(draws=2, iterations=5),
    SquareRoot(draws=2),
    Tree(draws=2),
    Smooth(draws=2, iterations=5, lag=3),
    Trigger(draws=2, releases=4),
]
EVERY = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.name)


def autoregression(*, steps=100, variance=100.0, step=0.5):
    """The state is the count, an AR(1) process with this variance and innovation variance."""
    lag = np.abs(np.arange(steps)[:, None] - np.arange(steps))
    covariance = variance * math.sqrt(1 - step / variance) ** lag
    return Model(variance=np.diag(covariance), of_sums=covariance, with_state=covariance)


def release(mechanism, data, budget=BUDGET, seed=0):
    return mechanism.release(data.for_mechanism(), budget, rng=np.random.default_rng(seed))


@pytest.fixture(scope="module")
def data():
    return tiny_streams(episodes=60)


def test_the_gradient_of_the_expected_error_is_that_of_differences():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(12, 12))
    joint = (root @ root.T).reshape(4, 3, 4, 3)
    model = Model(
        variance=joint[np.arange(4), 0, np.arange(4), 0],
        of_sums=joint[:, 1:, :, 1:].reshape(8, 8),
        with_state=joint[:, 1:, :, 0].reshape(8, 4),
        lag=1,
    )
    matrix = np.tril(rng.normal(size=(8, 8)))
    _, gradient = model.error(matrix)
    for i, j in ((0, 0), (5, 2), (7, 7)):
        moved = [matrix.copy(), matrix.copy()]
        moved[0][i, j] += 1e-5
        moved[1][i, j] -= 1e-5
        slope = (model.error(moved[0])[0] - model.error(moved[1])[0]) / 2e-5
        assert gradient[i, j] == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize(
    ("step", "total", "uniform", "best"),
    [(0.2, 0.3, 13.6, 8.93), (0.5, 1.5, 6.50, 5.62), (1.0, 6.0, 3.76, 3.61)],
)
def test_schedules_have_the_errors_of_the_kalman_filter(step, total, uniform, best):
    model = autoregression(step=step)
    even = np.diag(np.full(100, math.sqrt(total / 100)))
    assert model.error(even)[0] == pytest.approx(uniform, abs=0.05)
    costs = schedule.optimal_costs(model, total)
    assert costs.sum() == pytest.approx(total)
    assert model.error(np.diag(np.sqrt(costs.ravel())))[0] == pytest.approx(best, abs=0.01)


@pytest.mark.parametrize(("step", "total"), [(0.05, 0.3), (0.5, 1.5), (1.0, 6.0)])
def test_the_schedule_is_within_two_percent_of_the_bound_of_its_class(step, total):
    model = autoregression(step=step)
    costs = schedule.optimal_costs(model, total)
    error, _ = model.error(np.diag(np.sqrt(costs.ravel())))
    bound = schedule.certified_bound(model, costs)
    assert bound <= error <= 1.02 * bound


def test_no_schedule_falls_below_the_certified_bound():
    model = autoregression(steps=20)
    bound = schedule.certified_bound(model, schedule.optimal_costs(model, 1.0, iterations=5))
    rng = np.random.default_rng(2)
    for _ in range(200):
        costs = rng.dirichlet(np.full(20, 0.3))
        assert model.error(np.diag(np.sqrt(costs)))[0] >= bound


@RELATIONS
def test_p10_the_dearest_change_is_the_largest_shift_by_brute_force(relation):
    """Failed when values were charged for each of two visits instead of for their union."""
    rng = np.random.default_rng(3)
    shapes = [np.zeros(5)] + [
        np.float64((np.arange(5) >= a) & (np.arange(5) <= b)) for a in range(5) for b in range(a, 5)
    ]
    for weight in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0):
        count, value_costs = np.tril(rng.normal(size=(5, 5))), weight * rng.uniform(0, 2, 5)
        largest = 0.0
        for one, two in itertools.product(shapes, shapes if relation is REPLACE else shapes[:1]):
            shift, moves = count @ (one - two), np.maximum(one, two)
            largest = max(largest, float(shift @ shift + moves @ value_costs))
        (found,), _, _ = intervals.dearest(count, value_costs, relation)
        assert found == pytest.approx(largest)
        spent = intervals.worst_spending(count, value_costs, relation)
        assert spent.sum() == pytest.approx(largest)


@pytest.mark.parametrize(
    ("power", "add", "replace"), [(0, 100, 100), (1, 2, 6), (0.5, 3.940, 10.565)]
)
def test_p23_the_cost_of_a_matrix_is_that_of_enumerating_all_intervals(power, add, replace):
    """Failed when the largest column norm, the cost of a visit of one step, was charged."""
    count = factor.fractional_difference(100, power)
    for relation, expected in ((ADD, add), (REPLACE, replace)):
        (cost,), _, _ = intervals.dearest(count, np.zeros(100), relation)
        assert cost == pytest.approx(expected, abs=6e-4)
    column = (count**2).sum(axis=0).max()
    if power < 1:
        assert column < add / 2  # a column norm would undercharge


def test_p24_a_sensor_that_comes_back_contributes_nothing_the_second_time():
    """Failed when the accumulation over past steps was left out of `first_visit`."""
    there = np.array([[0, 1, 1, 0, 1, 0, 1], [1, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]], bool).T
    kept = np.array([[0, 1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]], bool).T
    np.testing.assert_array_equal(first_visit(there), kept)
    np.testing.assert_array_equal(first_visit(np.stack([there, kept])), np.stack([kept, kept]))


def test_p24_contributions_to_the_count_are_indicators_of_one_interval_whatever_is_reported():
    """Failed when visits were taken before reports off the segment counted as absent."""
    rng = np.random.default_rng(4)
    schema = tiny_streams().schema
    feature = Feature.of(schema, count_weight=0.5, values=("speed",))
    seen = rng.uniform([-100, -10], [500, 60], (20, 300, 2))
    seen[rng.random((20, 300)) < 0.1] = np.nan
    f = feature.unit_contributions(seen, rng.random((20, 300)) < 0.8, single_visit=True)
    assert set(np.unique(f[..., 0])) == {0.0, 1.0}
    starts = np.diff(f[..., 0], axis=0, prepend=0) == 1
    assert starts.sum(axis=0).max() == 1
    assert ((f[..., 1] >= 0) & (f[..., 1] <= f[..., 0])).all()


@EVERY
@RELATIONS
def test_p24_no_report_of_one_vehicle_moves_the_outputs_by_more_than_is_charged(
    mechanism, relation, data
):
    """Failed for `mf` when visits were not enforced on test windows: a vehicle that blinks."""
    budget = dataclasses.replace(BUDGET, relation=relation)
    model, feature, chosen = _chosen(mechanism, data, budget)
    matrix = chosen.matrix
    charged = chosen.spent(relation, single_visit=mechanism.single_visit).sum()
    rng = np.random.default_rng(5)
    largest = 0.0
    for _ in range(300):
        f = [_visits(rng, feature, mechanism.single_visit, model.steps) for _ in range(2)]
        change = f[0] if relation is ADD else f[0] - f[1]
        largest = max(largest, float(np.sum((matrix @ change.ravel()) ** 2)))
    assert largest <= charged
    assert charged <= 1.5 * (1 + 1e-9)


def _chosen(mechanism, data, budget):
    feature = pipeline.known_feature(
        data, count_weight=0.5, values=("speed",), relation=budget.relation
    )
    rng = np.random.default_rng(6)
    root = rng.normal(size=(120, 60))
    joint = (root.T @ root).reshape(20, 3, 20, 3)
    model = Model(
        variance=joint[np.arange(20), 0, np.arange(20), 0],
        of_sums=joint[:, 1:, :, 1:].reshape(40, 40),
        with_state=joint[:, 1:, :, 0].reshape(40, 20),
    )
    chosen = mechanism.channel(model, np.array([0.5, 0.5]), 1.5, budget.relation)
    return model, feature, chosen


def _visits(rng, feature, single_visit, steps):
    """What one vehicle adds that reports whatever it likes, extremes preferred."""
    seen = np.stack([np.full(steps, 5.0), rng.choice([-1e9, 0.0, 45.0, 1e9], steps)], axis=-1)
    there = rng.random(steps) < rng.choice([0.3, 0.9, 1.0])
    return feature.unit_contributions(seen[:, None], there[:, None], single_visit=single_visit)[
        :, 0
    ]


@EVERY
@RELATIONS
@pytest.mark.parametrize(
    "budget",
    [Budget.renyi_dp(5.0, 0.7), Budget.approximate_dp(2.0, 1e-6)],
    ids=["rdp", "dp"],
)
def test_p27_a_channel_spends_all_of_its_budget_and_no_more(mechanism, data, budget, relation):
    """Failed when channels were scaled to 0.9, and to 1.1, of the budget."""
    budget = dataclasses.replace(budget, relation=relation)
    found = release(mechanism, data, budget)
    assert excess(found.guarantee, budget, unit=PrivacyUnit.SENSOR_TRAJECTORY) is None
    settled = settle(found.guarantee, delta=budget.delta, alpha=budget.alpha)
    assert found.spent.sum() == pytest.approx(settled.mu**2, rel=1e-9)
    if isinstance(mechanism, Trigger):
        return  # fewer releases than it may make
    stated = budget.epsilon if budget.b_g is None else budget.b_g
    reached = settled.epsilon if budget.b_g is None else settled.b_g
    assert reached == pytest.approx(stated, rel=1e-6)


@EVERY
def test_p02_no_vehicle_or_a_thousand_leave_channel_and_ledger_unchanged(mechanism):
    """Failed when the filter was fitted with test windows among the known ones."""
    data = tiny_streams(episodes=40)
    window = data.episodes(Split.TEST)[0]
    before = release(mechanism, data)
    for present in (False, True):
        seen, there = data.observations.copy(), data.present.copy()
        there[window], seen[window] = present, (200.0, 40.0) if present else np.nan
        after = release(mechanism, dataclasses.replace(data, observations=seen, present=there))
        assert after.guarantee == before.guarantee
        assert after.info == before.info
        np.testing.assert_array_equal(after.estimate[:, 1:], before.estimate[:, 1:])
        assert (after.estimate[:, 0] != before.estimate[:, 0]).any()


def test_p13_p14_noise_of_a_matrix_channel_is_standard_normal_whatever_the_data():
    """Failed when the coordinates of a step shared their noise, and when it grew with the sums."""
    # 200 x 40 x 20 x 2 = 320,000 numbers; five standard errors: false alarm 6e-7 each
    matrix = np.tril(np.random.default_rng(7).normal(size=(40, 40)))
    noise = []
    for level in (0.0, 1e3):
        sums = np.full((40, 20, 2), level)
        outputs = channel.mixed(sums, matrix, draws=200, rng=np.random.default_rng(8))
        noise.append(outputs - (matrix @ sums[0].ravel()).reshape(20, 2))
    np.testing.assert_allclose(noise[0], noise[1], atol=1e-9)
    count = noise[0].size
    assert abs(noise[0].mean()) < 5 / math.sqrt(count)
    assert abs(noise[0].var() - 1) < 5 * math.sqrt(2 / count)
    for axis in range(4):
        here = np.moveaxis(noise[0], axis, 0)
        assert abs(np.mean(here[1:] * here[:-1])) < 5 / math.sqrt(here[1:].size)


@RELATIONS
def test_p20_the_distinguishability_of_the_worst_neighbors_of_a_matrix_is_the_charged_mu(relation):
    """Failed when the cost of a column was charged: the two could be told apart for certain."""
    count, value_costs = factor.scaled_to(
        factor.fractional_difference(30, 0.4), np.full((30, 1), 0.01), relation, 1.5
    )
    chosen = Channel(count=count, value_costs=value_costs)
    _, one, two = intervals.dearest(count, value_costs[:, 0], relation)
    left, right = intervals.indicators(30, one)[0], intervals.indicators(30, two)[0]
    both = np.stack(
        [
            np.stack([left, left * (left >= right)], -1),
            np.stack([right, right * (right > left)], -1),
        ]
    )
    rng = np.random.default_rng(9)
    runs = 100_000
    signal = (chosen.matrix @ (both[0] - both[1]).ravel()).reshape(30, 2)
    ratio = [
        np.einsum(
            "dks,ks->d", channel.mixed(f[None], chosen.matrix, draws=runs, rng=rng)[:, 0], signal
        )
        for f in both
    ]
    power = np.mean(ratio[0] > np.quantile(ratio[1], 0.9))
    assert norm.ppf(power) - norm.ppf(0.1) == pytest.approx(math.sqrt(1.5), rel=0.02)


@RELATIONS
def test_an_optimised_matrix_is_better_than_the_best_schedule_on_the_gaussian_model(relation):
    model = autoregression(steps=40)
    best, _ = model.error(np.diag(np.sqrt(schedule.optimal_costs(model, 1.5).ravel())))
    count, value_costs = factor.optimal_factor(model, 1.5, relation, iterations=20)
    error, _ = model.error(factor.assembled(count, value_costs))
    assert error < (0.75 if relation is ADD else 0.99) * best


def test_at_full_reporting_the_matrix_halves_the_error_of_uniform_on_a_gaussian_count():
    model = autoregression()
    uniform, _ = model.error(np.diag(np.full(100, math.sqrt(1.5 / 100))))
    count, value_costs = factor.optimal_factor(model, 1.5, ADD, iterations=25)
    assert model.error(factor.assembled(count, value_costs))[0] < 0.47 * uniform


def test_an_open_loop_schedule_beats_uniform_and_hold_on_held_out_windows(data):
    uniform = release(Uniform(draws=1), data).info["held_out_mse"]
    held = release(Hold(draws=1, period=5), data).info["held_out_mse"]
    assert release(OpenLoop(draws=1), data).info["held_out_mse"] < min(uniform, held)


def test_a_channel_with_memory_has_no_cost_without_enforced_visits():
    chosen = Channel(count=np.tril(np.ones((3, 3))), value_costs=np.zeros((3, 0)))
    with pytest.raises(ValueError, match="enforced visits"):
        chosen.spent(ADD, single_visit=False)


@EVERY
def test_estimates_do_not_depend_on_later_reports(mechanism, data):
    window = data.episodes(Split.TEST)[0]
    seen, there = data.observations.copy(), data.present.copy()
    there[window, 12:] = False
    seen[window, 12:] = np.nan
    before = release(mechanism, data).estimate[:, 0]
    changed = dataclasses.replace(data, observations=seen, present=there)
    after = release(mechanism, changed).estimate[:, 0]
    known = 12 - mechanism.lag_steps()
    np.testing.assert_allclose(after[:, :known], before[:, :known], rtol=1e-9)
    assert (after[:, known] != before[:, known]).any()


@pytest.mark.parametrize(
    ("mechanism", "wrong"),
    [
        (OpenLoop, {"draws": 0}),
        (Hold, {"period": 0}),
        (MatrixFusion, {"iterations": 0}),
        (SquareRoot, {"power": 1.5}),
        (Smooth, {"lag": 0}),
        (Trigger, {"releases": 0}),
    ],
)
def test_a_wrong_parameter_of_a_channel_is_refused_by_name(mechanism, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        mechanism(**wrong)


def test_the_dyadic_differences_have_every_prefix_as_a_sum_of_few():
    count = dyadic_differences(12)
    # row 12 covers the last 4 steps, row 8 the first 8: their sum is S_12
    np.testing.assert_array_equal(count[11] + count[7], np.eye(12)[11])
    increments = count @ np.tril(np.ones((12, 12)))
    assert set(np.unique(increments)) == {0.0, 1.0}
    assert increments.sum(axis=0).max() <= 1 + math.log2(12)


def test_the_trigger_fires_where_the_kalman_filter_is_too_uncertain():
    # the scalar Riccati recursion with a gain of 1 wherever the prediction reaches 4
    variance, fired = 100.0, []
    for _ in range(30):
        fired.append(variance >= 4.0)
        if fired[-1]:
            variance = variance / (1 + variance)
        variance = (1 - 0.5 / 100) * variance + 0.5
    found = triggered(autoregression(steps=30), np.ones(1), 4.0)
    np.testing.assert_array_equal(found, fired)
    assert 2 < found.sum() < 10


def test_waiting_lowers_the_error_and_is_said_among_what_is_public(data):
    waits = release(Smooth(draws=1, iterations=5, lag=5), data)
    at_once = release(MatrixFusion(draws=1, iterations=5), data)
    assert waits.info["held_out_mse"] < at_once.info["held_out_mse"]
    assert set(waits.guarantee.public) - set(at_once.guarantee.public) == {
        "estimates may wait 5 steps"
    }


def test_a_band_of_training_reports_scales_values_and_changes_no_bound_on_a_contribution():
    data = tiny_streams()
    wide = Feature.of(data.schema, count_weight=0.6, values=("speed",))
    narrow = wide.narrowed(data.observations, data.present)
    speeds = data.observations[..., 1][data.present]
    np.testing.assert_allclose(
        [narrow.lower[1], narrow.upper[1]], np.quantile(speeds, (0.05, 0.95))
    )
    assert (narrow.lower[0], narrow.upper[0]) == (wide.lower[0], wide.upper[0])
    seen = np.array([[5.0, -1e9], [5.0, 1e9], [5.0, np.mean(speeds)], [-5.0, 10.0]])
    f = narrow.contributions(seen, np.ones(4, dtype=bool))
    np.testing.assert_allclose(f[[0, 1, 3]], [[0.6, 0.0], [0.6, 0.8], [0.0, 0.0]])
    assert 0.2 < f[2, 1] < 0.6


def test_without_training_reports_or_where_all_are_alike_the_band_is_that_of_the_schema():
    data = tiny_streams()
    wide = Feature.of(data.schema, count_weight=0.6, values=("speed",))
    alike = np.full_like(data.observations, 7.0)
    for seen, there in ((alike, data.present), (alike, np.zeros_like(data.present))):
        np.testing.assert_array_equal(wide.narrowed(seen, there).upper, wide.upper)


def test_p15_the_band_does_not_depend_on_protected_reports():
    """Failed when the band was taken over all windows."""
    data = tiny_streams()
    poisoned = data.observations.copy()
    poisoned[data.episodes(Split.TEST)] = 45.0
    bands = [
        pipeline.known_feature(one, values=("speed",), count_weight=0.5, relation=ADD).upper
        for one in (data, dataclasses.replace(data, observations=poisoned))
    ]
    np.testing.assert_array_equal(*bands)


@pytest.mark.parametrize(
    ("step", "total", "near"), [(0.2, 0.3, 0.9), (0.5, 1.5, 0.7), (1.0, 6.0, 0.75)]
)
def test_the_optimised_matrix_lies_above_the_bound_of_its_class_and_near_it(step, total, near):
    model = autoregression(step=step)
    count, value_costs = factor.optimal_factor(model, total, ADD, iterations=60)
    error, _ = model.error(factor.assembled(count, value_costs))
    least = bound.certified_temporal_bound(model, count, total, exponent=factor.EXPONENTS[-1])
    assert near * error < least < error
    # the class without memory cannot reach it
    assert least < schedule.certified_bound(model, schedule.optimal_costs(model, total))


def test_no_matrix_falls_below_the_certified_temporal_bound():
    """Failed when the eigenvalue was halved."""
    model, rng = autoregression(steps=15), np.random.default_rng(10)
    count, _ = factor.optimal_factor(model, 1.0, ADD, iterations=40)
    least = bound.certified_temporal_bound(model, count, 1.0, exponent=factor.EXPONENTS[-1])
    none = np.zeros((15, 0))
    for spread in np.geomspace(1e-4, 1.0, 60):
        tried = count + spread * np.tril(rng.normal(size=(15, 15))) * np.abs(count).max()
        tried, _ = factor.scaled_to(tried, none, ADD, 1.0)
        assert model.error(tried)[0] >= least


def test_the_temporal_bound_refuses_what_it_does_not_cover():
    waits = dataclasses.replace(autoregression(steps=5), lag=1)
    with pytest.raises(ValueError, match="do not wait"):
        bound.certified_temporal_bound(waits, np.eye(5), 1.0, exponent=8.0)


def test_p09_a_centred_feature_is_charged_twice_the_norm_under_replace_one_and_never_used_there():
    """Failed when values were centred under both relations."""
    data = tiny_streams()
    feature = Feature.of(data.schema, count_weight=0.6, values=("speed",))
    centred = dataclasses.replace(feature, centred=True)
    f = centred.contributions(np.array([[5.0, -1e9], [5.0, 1e9]]), np.ones(2, dtype=bool))
    np.testing.assert_allclose(f, [[0.6, -0.8], [0.6, 0.8]])
    apart = float(np.linalg.norm(f[0] - f[1]))
    assert centred.l2_sensitivity(REPLACE) == pytest.approx(apart) == pytest.approx(1.6)
    assert centred.l2_sensitivity(ADD) == 1.0 == feature.l2_sensitivity(REPLACE)
    for relation in NeighboringRelation:
        used = pipeline.known_feature(data, values=("speed",), count_weight=0.6, relation=relation)
        assert used.centred == (relation is ADD)
        assert used.l2_sensitivity(relation) == 1.0


@RELATIONS
@pytest.mark.parametrize("weight", [0.1, 0.6, 1.0])
def test_p05_one_sensor_moves_a_sum_of_banded_values_by_at_most_the_declared_norm(relation, weight):
    """Failed when values beyond the band were not clipped."""
    data = tiny_streams()
    feature = pipeline.known_feature(
        data, values=("speed",), count_weight=weight, relation=relation
    )
    rng = np.random.default_rng(11)
    corners = [[p, v] for p in (-1, 0, 400, 401) for v in (-1e9, 0, 45, 1e300)]
    seen = np.concatenate([np.array(corners, float), rng.uniform([-50, -20], [450, 60], (600, 2))])
    f = feature.contributions(seen, rng.random(len(seen)) < 0.9)
    absent = np.zeros((1, 2))
    others = np.concatenate([f, absent]) if relation is REPLACE else absent
    largest = np.linalg.norm(f[:, None] - others, axis=-1).max()
    assert largest <= feature.l2_sensitivity(relation)
    assert largest == pytest.approx(1.0)
