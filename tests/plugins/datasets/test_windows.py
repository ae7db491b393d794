from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panelbench import DataError, Split
from panelbench_datasets.files import Repairs
from panelbench_datasets.windows import SHARED, Period, Windowing, blocks, sensor_streams, separated


def traffic_of(frames, entries, dwell):
    """One vehicle enters at each of `entries` and stays `dwell` frames."""
    frame = np.concatenate([np.arange(e, min(e + dwell, frames)) for e in entries])
    vehicle = np.concatenate(
        [np.full(min(e + dwell, frames) - e, n) for n, e in enumerate(entries)]
    )
    order = np.argsort(frame, kind="stable")
    return Period(
        frame=frame[order],
        vehicle=vehicle[order],
        position=np.zeros(len(frame)),
        speed=np.ones(len(frame)),
        frames=frames,
    )


@settings(deadline=None)  # timings are not what is tested
@given(
    frames=st.integers(60, 600),
    steps=st.integers(2, 20),
    gap=st.integers(0, 100),
    dwell=st.integers(1, 400),
    every=st.integers(1, 40),
)
def test_no_vehicle_is_ever_in_two_splits(frames, steps, gap, dwell, every):
    if (frames - 2 * gap) // steps < 3:
        with pytest.raises(DataError, match="too short"):
            blocks(frames, steps=steps, gap=gap)
        return
    period = traffic_of(frames, range(0, frames, every), dwell)
    kept = separated(blocks(frames, steps=steps, gap=gap), period, steps=steps)
    seen = {split: set() for split in Split}
    for start, split in kept:
        inside = (period.frame >= start) & (period.frame < start + steps)
        seen[split] |= set(period.vehicle[inside])
    assert not seen[Split.TRAIN] & seen[Split.VALIDATION]
    assert not seen[Split.TRAIN] & seen[Split.TEST]
    assert not seen[Split.VALIDATION] & seen[Split.TEST]


@settings(deadline=None)  # timings are not what is tested
@given(frames=st.integers(60, 3000), steps=st.integers(1, 20), gap=st.integers(0, 100))
def test_windows_do_not_overlap_and_blocks_keep_their_gap(frames, steps, gap):
    if (frames - 2 * gap) // steps < 3:
        return
    starts = blocks(frames, steps=steps, gap=gap)
    for (start, split), (following, later) in pairwise(starts):
        assert following - start - steps == (0 if split == later else gap)
    assert starts[-1][0] + steps <= frames


def test_windows_left_out_for_a_shared_vehicle_are_counted():
    period = traffic_of(1000, range(0, 1000, 10), 100)
    repairs = Repairs()
    windowing = Windowing(steps=10, segment_m=400, lanes=5, reporters=1, gap_seconds=0)
    data = sensor_streams(
        [period], windowing, rng=np.random.default_rng(0), title="", repairs=repairs
    )
    assert data.repairs[SHARED] > 0
    assert data.repairs[SHARED] + len(data.split) == 100


def test_vehicles_that_never_leave_end_in_a_clear_error():
    period = traffic_of(1000, [0], 1000)
    windowing = Windowing(steps=10, segment_m=400, lanes=5, reporters=1, gap_seconds=10)
    with pytest.raises(DataError, match="No window is left for train, validation"):
        sensor_streams(
            [period], windowing, rng=np.random.default_rng(0), title="", repairs=Repairs()
        )


def test_an_absent_vehicle_is_nan_and_not_present():
    period = traffic_of(100, [0, 5, 70], 8)
    windowing = Windowing(steps=10, segment_m=400, lanes=5, reporters=1, gap_seconds=0)
    data = sensor_streams(
        [period], windowing, rng=np.random.default_rng(0), title="", repairs=Repairs()
    )
    assert data.present[0, :, 0].tolist() == [True] * 8 + [False] * 2
    assert np.isnan(data.observations[0, 8, 0]).all()
    assert data.state[0, 6] == pytest.approx(2 / 0.4)
