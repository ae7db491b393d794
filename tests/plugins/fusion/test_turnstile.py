"""Channels for sensors that pass once a window: what each may add, the accountant, the optimum."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from panelbench import Budget, NeighboringRelation, PrivacyUnit, Split
from panelbench.accounting import excess, settle
from panelbench.testing import tiny_streams
from panelbench_fusion import factor, passage, passage_factor
from panelbench_fusion.answers import Answers
from panelbench_fusion.feature import Feature
from panelbench_fusion.model import Model
from panelbench_fusion.turnstile import Turnstile

RELATIONS = pytest.mark.parametrize("relation", list(NeighboringRelation))
ADD, REPLACE = NeighboringRelation
BUDGET = Budget.renyi_dp(2.0, 1.5)
SMALL = Turnstile(draws=2, iterations=10)


@pytest.fixture(scope="module")
def data():
    return tiny_streams(episodes=60)


def release(data, budget=BUDGET, seed=0, mechanism=SMALL):
    return mechanism.release(data.for_mechanism(), budget, rng=np.random.default_rng(seed))


def feature_of(relation):
    schema = tiny_streams().schema
    feature = Feature.of(schema, count_weight=0.5, values=("speed",))
    return dataclasses.replace(feature, centred=relation is ADD)


def whatever(rng, *, sensors, steps):
    """Reports of sensors that blink, jump and exaggerate."""
    seen = np.stack(
        [
            rng.choice([-1.0, 0.0, 5.0, 99.9, 100.0, 399.0, np.nan], (1, steps, sensors)),
            rng.choice([-1e9, 0.0, 20.0, 45.0, 1e9], (1, steps, sensors)),
        ],
        axis=-1,
    )
    share = rng.choice([0.1, 0.9, 1.0], (1, 1, sensors))
    return seen, rng.random((1, steps, sensors)) < share


def sums_of(feature, seen, there):
    return passage.passage_sums(feature, seen, there, position=0, far_below=100.0)


def random_channel(rng, *, steps, values, scale=1.0):
    """A causal channel that shows what it may."""
    found = Answers(
        stay=rng.normal(size=steps),
        leave=np.tril(rng.normal(size=(steps, steps))) * (np.arange(steps) > 0),
        enter=np.tril(rng.normal(size=(steps, steps))) * (np.arange(steps) > 0),
        far=rng.normal(size=steps),
        gains=rng.normal(size=(steps, values)) * scale,
    )
    size = passage.VALUES + values
    used = np.concatenate(
        [
            np.arange(steps) * size + passage.COUNT,
            np.arange(steps) * size + passage.ARRIVALS,
            [passage.FAR],
            (np.arange(steps)[:, None] * size + np.arange(passage.VALUES, size)).ravel(),
        ]
    )
    matrix = np.zeros((steps * (1 + values), steps * size))
    matrix[:, used] = found.channel()
    return found, matrix


def test_p24_a_sensor_counts_in_one_of_the_listed_ways_whatever_it_reports():
    """Failed when one that came was let go again."""
    rng = np.random.default_rng(1)
    steps = 12
    seen, there = whatever(rng, sensors=400, steps=steps)
    listed = {tuple(row) for row in passage.supports(steps)}
    ways = set()
    for sensor in range(400):
        one = slice(sensor, sensor + 1)
        sums = sums_of(feature_of(ADD), seen[:, :, one], there[:, :, one])[0]
        counts, arrives, far, value = sums.T
        assert tuple(counts) in listed
        np.testing.assert_array_equal(arrives[1:], np.diff(counts) > 0)
        assert arrives[0] == 0
        if far[0]:
            assert counts.all()
        assert (np.abs(value) <= counts).all()
        ways.add(tuple(counts))
    assert len(ways) > steps


def test_a_sensor_that_stays_comes_or_goes_counts_as_it_does():
    counted = np.zeros((6, 5), dtype=bool)
    counted[:3, 0] = True  # goes
    counted[2:4, 1] = True  # comes and goes
    counted[[0, 1, 3], 2] = True  # blinks
    counted[:2, 3] = True  # far, and goes all the same
    far = np.array([False, False, False, True, True])
    expected = np.zeros((6, 5), dtype=bool)
    expected[:3, 0] = True
    expected[2:, 1] = True
    expected[:2, 2] = True
    expected[:, 3] = True
    np.testing.assert_array_equal(passage.passages(counted, far), expected)


def test_p06_p08_a_sensor_adds_its_own_sums_whoever_else_is_there():
    """Failed when the sum was divided by the number of sensors."""
    rng = np.random.default_rng(2)
    seen, there = whatever(rng, sensors=50, steps=12)
    feature = feature_of(REPLACE)
    alone = [sums_of(feature, seen[:, :, [i]], there[:, :, [i]]) for i in range(50)]
    np.testing.assert_allclose(sums_of(feature, seen, there), np.sum(alone, axis=0), atol=1e-9)


@RELATIONS
def test_p10_the_dearest_change_is_the_largest_shift_by_brute_force(relation):
    """Failed for replace-one when the values of the replaced sensor were left out of the union."""
    rng = np.random.default_rng(3)
    steps = 4
    extremes = (-1.0, 1.0) if relation is ADD else (0.0, 1.0)
    sensors = []
    for place, there in enumerate(passage.supports(steps)):
        for value in itertools.product(extremes, repeat=steps):
            sums = np.zeros((steps, 4))
            sums[:, passage.COUNT] = there
            if steps + 1 <= place < 2 * steps:
                sums[place - steps, passage.ARRIVALS] = 1
            sums[0, passage.FAR] = place == 2 * steps
            sums[:, passage.VALUES] = there * value
            sensors.append(sums.ravel())
    for scale in (0.1, 0.5, 1.0, 2.0) * 10:
        _, matrix = random_channel(rng, steps=steps, values=1, scale=scale)
        shown = np.array(sensors) @ matrix.T
        costs = np.square(shown).sum(axis=1)
        if relation is REPLACE:
            costs = costs[:, None] + costs - 2 * shown @ shown.T
        found, spent = passage.dearest_change(*passage.answers(matrix, steps), relation)
        assert found == pytest.approx(costs.max())
        assert spent.sum() == pytest.approx(found)


@RELATIONS
def test_p24_no_report_of_one_sensor_moves_the_outputs_by_more_than_is_charged(relation, data):
    """Failed when sensors far from the exit were let go."""
    rng = np.random.default_rng(4)
    steps = data.schema.max_rows
    _, matrix = random_channel(rng, steps=steps, values=1, scale=0.1)
    charged, _ = passage.dearest_change(*passage.answers(matrix, steps), relation)
    seen, there = whatever(rng, sensors=600, steps=steps)
    feature = feature_of(relation)
    shown = np.array(
        [matrix @ sums_of(feature, seen[:, :, [i]], there[:, :, [i]]).ravel() for i in range(600)]
    )
    change = shown if relation is ADD else shown[:300] - shown[300:]
    largest = np.square(change).sum(axis=1).max()
    assert 0.2 * charged < largest <= charged


@pytest.mark.parametrize(
    "place",
    [
        (0, 0, 1, passage.COUNT),
        (0, 0, 0, passage.VALUES),
        (1, 1, 0, passage.COUNT),
        (2, 0, 1, passage.FAR),
        (2, 1, 1, passage.VALUES),
    ],
    ids=["later steps", "a value in a count row", "a count in a value row", "far later", "memory"],
)
def test_a_channel_that_shows_more_has_no_cost(place):
    _, matrix = random_channel(np.random.default_rng(5), steps=4, values=1)
    passage.answers(matrix, 4)
    blocks = matrix.reshape(4, 2, 4, 4)
    row_step, row, step, coordinate = place
    blocks[row_step, row, step, coordinate] = 0.1
    with pytest.raises(ValueError, match="shows more"):
        passage.answers(matrix, 4)


def test_the_channel_answers_as_it_was_asked_to():
    found, matrix = random_channel(np.random.default_rng(6), steps=7, values=2)
    shown, value_costs = passage.answers(matrix, 7)
    np.testing.assert_allclose(shown, found.columns(), atol=1e-12)
    np.testing.assert_allclose(value_costs, np.square(found.gains).sum(axis=1))


@RELATIONS
@pytest.mark.parametrize("values", [0, 1, 2])
def test_the_gradient_of_what_is_optimised_is_that_of_differences(values, relation):
    rng = np.random.default_rng(7)
    steps = 6
    inputs = 2 * steps + 1 + steps * values
    root = rng.normal(size=(inputs + steps, inputs + steps))
    joint = root @ root.T
    model = Model(
        variance=np.diag(joint)[inputs:],
        of_sums=joint[:inputs, :inputs],
        with_state=joint[:inputs, inputs:],
    )
    goal = passage_factor.Goal(model, passage.supports(steps), 1.5, relation, values=values)
    flat = goal.start() + 0.3 * rng.normal(size=len(goal.start()))
    _, slope = goal.loss(flat, 16.0)
    for place in rng.choice(len(flat), 25, replace=False):
        step = np.zeros(len(flat))
        step[place] = 1e-6
        expected = (goal.loss(flat + step, 16.0)[0] - goal.loss(flat - step, 16.0)[0]) / 2e-6
        assert slope[place] == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_under_add_or_remove_one_free_numbers_never_cost_more_than_the_total():
    rng = np.random.default_rng(8)
    steps, values = 9, 1
    model = Model(variance=np.ones(steps), of_sums=np.eye(28), with_state=np.zeros((28, steps)))
    goal = passage_factor.Goal(model, passage.supports(steps), 1.5, ADD, values=values)
    for _ in range(50):
        found = goal.answers(rng.standard_cauchy(len(goal.start())))
        shown, value_costs = found.columns(), np.square(found.gains).sum(axis=1)
        cost, _ = passage.dearest_change(shown, value_costs, ADD)
        assert cost == pytest.approx(1.5, rel=1e-9)


def queue(*, steps=40, rate=0.4, start=100.0):
    """A count with independent arrivals and departures; nobody is far."""
    lower = np.tril(np.ones((steps, steps)))
    lower[:, 0] = 0.0  # nobody comes or goes at the first step
    shared = rate * lower @ lower.T
    count = start + 2 * shared
    inputs = np.zeros((2 * steps + 1, 2 * steps + 1))
    inputs[:steps, :steps] = count
    inputs[:steps, steps : 2 * steps] = rate * lower
    inputs[steps : 2 * steps, :steps] = rate * lower.T
    inputs[range(steps, 2 * steps), range(steps, 2 * steps)] = rate
    return Model(variance=np.diag(count), of_sums=inputs, with_state=inputs[:, :steps])


@RELATIONS
def test_one_passage_a_window_is_worth_more_than_one_visit(relation):
    model = queue()
    steps = model.steps
    found = passage_factor.optimal_answers(
        model, passage.supports(steps), 1.5, relation, values=0, iterations=100
    )
    cost, _ = passage.dearest_change(found.columns(), np.zeros(steps), relation)
    error, _ = model.error(found.times(math.sqrt(1.5 / cost)).channel())
    visits = Model(
        variance=model.variance,
        of_sums=model.of_sums[:steps, :steps],
        with_state=model.with_state[:steps],
    )
    count, value_costs = factor.optimal_factor(visits, 1.5, relation, iterations=15)
    other, _ = visits.error(factor.assembled(count, value_costs))
    assert error < (0.95 if relation is ADD else 0.98) * other


@RELATIONS
@pytest.mark.parametrize(
    "budget",
    [Budget.renyi_dp(5.0, 0.7), Budget.approximate_dp(2.0, 1e-6)],
    ids=["rdp", "dp"],
)
def test_p27_all_of_the_budget_is_spent_and_no_more(data, budget, relation):
    """Failed when channels were scaled to 0.9, and to 1.1, of the budget."""
    budget = dataclasses.replace(budget, relation=relation)
    found = release(data, budget)
    assert excess(found.guarantee, budget, unit=PrivacyUnit.SENSOR_TRAJECTORY) is None
    settled = settle(found.guarantee, delta=budget.delta, alpha=budget.alpha)
    assert found.spent.sum() == pytest.approx(settled.mu**2, rel=1e-9)
    stated = budget.epsilon if budget.b_g is None else budget.b_g
    reached = settled.epsilon if budget.b_g is None else settled.b_g
    assert reached == pytest.approx(stated, rel=1e-6)


def test_p02_p16_no_vehicle_or_a_thousand_leave_channel_and_ledger_unchanged(data):
    """Failed when the band of values was taken over all windows, protected ones too."""
    window = data.episodes(Split.TEST)[0]
    before = release(data)
    for present in (False, True):
        seen, there = data.observations.copy(), data.present.copy()
        there[window], seen[window] = present, (200.0, 40.0) if present else np.nan
        after = release(dataclasses.replace(data, observations=seen, present=there))
        assert after.guarantee == before.guarantee
        assert after.info == before.info
        np.testing.assert_array_equal(after.estimate[:, 1:], before.estimate[:, 1:])
        assert (after.estimate[:, 0] != before.estimate[:, 0]).any()


def test_estimates_do_not_depend_on_later_reports(data):
    test = data.episodes(Split.TEST)
    seen, there = data.observations.copy(), data.present.copy()
    seen[test, 10:], there[test, 10:] = np.nan, False
    before = release(data).estimate
    after = release(dataclasses.replace(data, observations=seen, present=there)).estimate
    np.testing.assert_array_equal(after[..., :10], before[..., :10])
    assert (after[..., 10:] != before[..., 10:]).any()


def test_without_a_position_or_values_it_still_fuses(data):
    for mechanism in (
        Turnstile(draws=1, iterations=5, position="nowhere"),
        Turnstile(draws=1, iterations=5, far=0.0),
        Turnstile(draws=1, iterations=5, values=()),
    ):
        assert np.isfinite(release(data, mechanism=mechanism).estimate).all()


@pytest.mark.parametrize("wrong", [{"iterations": 0}, {"far": 1.5}, {"draws": 0}])
def test_a_wrong_parameter_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Turnstile(**wrong)
