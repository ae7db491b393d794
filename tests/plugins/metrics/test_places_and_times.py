"""Hours of the day and maps, against scipy."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import wasserstein_distance

from panelbench.testing import tiny_visits
from panelbench_metrics.hours import HourOfDayW1
from panelbench_metrics.spatial import SpatialJsd


@pytest.fixture(scope="module")
def visits():
    return tiny_visits()


def hours_of(frame):
    return (frame["time"] // 60 % 24).to_numpy()


def moved(frame, minutes):
    return frame.assign(time=frame["time"] + minutes)


def spread(frame, rng):
    """Rows at any hour of three days."""
    order = np.sort(rng.uniform(0, 3 * 1440, len(frame)))
    return frame.assign(time=order)


@pytest.mark.parametrize("seed", range(5))
def test_hours_on_the_line_agree_with_scipy(visits, as_release, scores_of, seed):
    frame = spread(visits.train, np.random.default_rng(seed))
    got = scores_of(HourOfDayW1(), visits, as_release(frame, visits.schema))["linear"]
    expected = wasserstein_distance(hours_of(visits.test), hours_of(frame))
    assert got.value == pytest.approx(expected, rel=1e-9)
    assert got.unit == "hours"


@pytest.mark.parametrize("minutes", [0, 60, 300, 720, 900, 1380])
def test_hours_on_the_circle_are_the_best_of_all_cuts(visits, as_release, scores_of, minutes):
    frame = moved(visits.train, minutes)
    got = scores_of(HourOfDayW1(), visits, as_release(frame, visits.schema))["circular"]
    cuts = [
        wasserstein_distance((hours_of(visits.test) + k) % 24, (hours_of(frame) + k) % 24)
        for k in range(24)
    ]
    assert got.value == pytest.approx(min(cuts), rel=1e-9)


def test_the_last_hour_is_next_to_the_first_on_the_circle(visits, as_release, scores_of):
    late, early = (visits.test.groupby("user").head(1).assign(time=t) for t in (1439.0, 0.0))
    dataset = dataclasses.replace(
        visits, schema=dataclasses.replace(visits.schema, min_rows=1), test=late
    )
    got = scores_of(HourOfDayW1(), dataset, as_release(early, dataset.schema))
    assert {name: score.value for name, score in got.items()} == {"linear": 23.0, "circular": 1.0}


def test_regular_times_have_no_hour(dataset, as_release, scores_of):
    assert not scores_of(HourOfDayW1(), dataset, as_release(dataset.test))


@pytest.mark.parametrize("cells", [2, 7, 40])
def test_maps_agree_with_scipy(visits, as_release, scores_of, cells):
    got = scores_of(SpatialJsd(cells=cells), visits, as_release(visits.train, visits.schema))
    bounds = [(visits.schema[n].lower, visits.schema[n].upper) for n in ("latitude", "longitude")]
    maps = [
        np.histogram2d(f["latitude"], f["longitude"], bins=cells, range=bounds)[0].ravel()
        for f in (visits.test, visits.train)
    ]
    assert got["jsd"].value == pytest.approx(jensenshannon(*maps) ** 2, rel=1e-9)


def test_maps_that_do_not_meet_score_the_worst(visits, as_release, scores_of):
    far = visits.test.assign(latitude=39.5, longitude=-75.0)
    got = scores_of(SpatialJsd(), visits, as_release(far, visits.schema))["jsd"]
    assert got.value == pytest.approx(math.log(2.0))


def test_data_without_coordinates_has_no_map(dataset, as_release, scores_of):
    assert not scores_of(SpatialJsd(), dataset, as_release(dataset.test))


@pytest.mark.parametrize(("share", "worse"), [(0.1, 0.3), (0.3, 0.8)])
def test_more_rows_elsewhere_are_a_worse_map(visits, as_release, scores_of, share, worse):
    wrong = np.random.default_rng(0).random(len(visits.test))
    values = []
    for level in (share, worse):
        frame = visits.test.copy()
        frame.loc[wrong < level, "latitude"] = 39.5
        release = as_release(frame, visits.schema)
        values.append(scores_of(SpatialJsd(), visits, release)["jsd"].value)
    assert 0 < values[0] < values[1]


def test_a_grid_needs_two_cells():
    with pytest.raises(ValueError, match="at least 2, got 1"):
        SpatialJsd(cells=1)
