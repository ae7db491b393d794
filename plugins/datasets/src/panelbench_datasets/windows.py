"""From vehicle tracks to windows: density, reporters, and blocks of time that share no vehicle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from panelbench import Column, DataError, PrivacyUnit, Schema, SensorStreams, Split
from panelbench_datasets.traffic import MAX_SPEED

if TYPE_CHECKING:
    from panelbench_datasets.files import Repairs

STEP_SECONDS = 0.2
SHARES = (0.8, 0.1, 0.1)
SHARED = "windows left out, a vehicle of theirs is in the next block"
JAM_VEHICLES_PER_KM_AND_LANE = 200.0


@dataclass(frozen=True, kw_only=True)
class Period:
    """Tracks on the segment during one uninterrupted recording, one row a vehicle and frame.

    Attributes:
        frame: Frame number from 0, 0.2 s apart, not decreasing.
        vehicle: Vehicle number, unique within the period.
        position: Position in the segment (m).
        speed: Speed (m/s).
        frames: Number of frames, empty ones included.
    """

    frame: np.ndarray
    vehicle: np.ndarray
    position: np.ndarray
    speed: np.ndarray
    frames: int


@dataclass(frozen=True, kw_only=True)
class Windowing:
    """How periods are cut into windows.

    Attributes:
        steps: Steps in a window (K), 0.2 s each.
        segment_m: Length of the segment (m).
        lanes: Lanes of the segment, for the public bound of the density.
        reporters: Probability that a vehicle reports, drawn once for each vehicle.
        gap_seconds: Least time between two blocks of different splits (s).
        blocked: True for contiguous blocks, False to shuffle windows (which shares vehicles).
    """

    steps: int
    segment_m: float
    lanes: int
    reporters: float
    gap_seconds: float
    blocked: bool = True

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}.")
        if not 0 < self.reporters <= 1:
            raise ValueError(f"reporters is a share in (0, 1], got {self.reporters}.")
        if not self.gap_seconds >= 0:
            raise ValueError(f"gap_seconds cannot be negative, got {self.gap_seconds}.")
        if not self.segment_m > 0:
            raise ValueError(f"segment_m must be positive, got {self.segment_m}.")


def blocks(frames: int, *, steps: int, gap: int) -> list[tuple[int, Split]]:
    """First frames of the windows of three contiguous blocks, `gap` frames apart.

    The blocks take 80, 10 and 10 % of the whole windows that fit, at least one window each.

    >>> [(start, split.name) for start, split in blocks(1100, steps=100, gap=300)]
    [(0, 'TRAIN'), (100, 'TRAIN'), (200, 'TRAIN'), (600, 'VALIDATION'), (1000, 'TEST')]
    """
    windows = (frames - 2 * gap) // steps
    if windows < len(SHARES):
        raise DataError(
            f"A period of {frames} steps is too short for three blocks of windows of {steps} "
            f"steps with two gaps of {gap} steps; give a longer recording or a shorter gap."
        )
    small = [max(1, round(share * windows)) for share in SHARES[1:]]
    starts: list[tuple[int, Split]] = []
    at = 0
    for split, count in zip(Split, (windows - sum(small), *small), strict=True):
        starts += [(at + steps * index, split) for index in range(count)]
        at += steps * count + gap
    return starts


def separated(
    starts: list[tuple[int, Split]], period: Period, *, steps: int
) -> list[tuple[int, Split]]:
    """`starts` without the windows of a block whose vehicles are still there in the next block."""
    kept: list[tuple[int, Split]] = []
    later: np.ndarray = np.zeros(0, dtype=np.int64)  # vehicles of the blocks that follow
    so_far: np.ndarray = later
    current = starts[-1][1]
    for start, split in reversed(starts):
        low, high = np.searchsorted(period.frame, [start, start + steps])
        there = np.unique(period.vehicle[low:high])
        if split != current:
            current, later = split, so_far
        if not np.isin(there, later).any():
            kept.append((start, split))
            so_far = np.union1d(so_far, there)
    return kept[::-1]


def _cut(
    period: Period, start: int, reports: np.ndarray, windowing: Windowing
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Density, and the observations of the reporting vehicles, in one window.

    Returns:
        State, shape (steps,); observations, shape (steps, reporting vehicles, 2), NaN where
        absent; the numbers of all vehicles in the window, in order.
    """
    low, high = np.searchsorted(period.frame, [start, start + windowing.steps])
    step = period.frame[low:high] - start
    vehicle = period.vehicle[low:high]
    count = np.bincount(step, minlength=windowing.steps)
    chosen = np.isin(vehicle, reports)
    ids, column = np.unique(vehicle[chosen], return_inverse=True)
    seen = np.full((windowing.steps, len(ids), 2), np.nan)
    seen[step[chosen], column, 0] = period.position[low:high][chosen]
    seen[step[chosen], column, 1] = period.speed[low:high][chosen]
    return count / (windowing.segment_m / 1000), seen, np.unique(vehicle)


def sensor_streams(
    periods: list[Period],
    windowing: Windowing,
    *,
    rng: np.random.Generator,
    title: str,
    repairs: Repairs,
    extra: dict[str, Any] | None = None,
) -> SensorStreams:
    """Windows of all periods as one dataset.

    The state counts every vehicle on the segment; only reporters are observed.

    `extra["windows"]` holds for each window its period, first frame and all vehicle numbers.
    """
    states, seen, splits, facts = [], [], [], []
    gap = round(windowing.gap_seconds / STEP_SECONDS)
    for number, period in enumerate(periods):
        vehicles = np.unique(period.vehicle)
        reports = vehicles[rng.random(len(vehicles)) < windowing.reporters]
        if windowing.blocked:
            wanted = blocks(period.frames, steps=windowing.steps, gap=gap)
            starts = separated(wanted, period, steps=windowing.steps)
            repairs.add(SHARED, len(wanted) - len(starts))
        else:
            starts = _shuffled(period.frames, windowing.steps, rng)
        for start, split in starts:
            state, observed, ids = _cut(period, start, reports, windowing)
            states.append(state)
            seen.append(observed)
            splits.append(split)
            facts.append({"period": number, "start": start, "vehicles": ids.tolist()})
    empty = [split.name.lower() for split in Split if split not in splits]
    if empty:
        raise DataError(
            f"No window is left for {', '.join(empty)}, because vehicles stay longer than the gap; "
            f"give a longer recording or a longer gap."
        )
    sensors = max(1, *(observed.shape[1] for observed in seen))
    observations = np.full((len(seen), windowing.steps, sensors, 2), np.nan)
    for index, observed in enumerate(seen):
        observations[index, :, : observed.shape[1]] = observed
    return SensorStreams(
        schema=_schema(windowing, title),
        observations=observations,
        present=np.isfinite(observations[..., 0]),
        state=np.stack(states),
        split=np.array(splits, dtype=np.int64),
        step_seconds=STEP_SECONDS,
        repairs=repairs.counts,
        extra={"windows": facts, **(extra or {})},
    )


def _shuffled(frames: int, steps: int, rng: np.random.Generator) -> list[tuple[int, Split]]:
    """All windows of a period in time order, 80/10/10 at random; vehicles are shared."""
    windows = frames // steps
    if windows < len(SHARES):
        raise DataError(f"A period of {frames} steps has fewer than 3 windows of {steps} steps.")
    small = [max(1, round(share * windows)) for share in SHARES[1:]]
    labels = np.repeat(list(Split), (windows - sum(small), *small))
    return [(index * steps, Split(label)) for index, label in enumerate(rng.permutation(labels))]


def _schema(windowing: Windowing, title: str) -> Schema:
    return Schema(
        columns=(
            Column(
                name="position",
                unit="m",
                lower=0.0,
                upper=windowing.segment_m,
                description="Position of the vehicle's front from the start of the segment.",
            ),
            Column(name="speed", unit="m/s", lower=0.0, upper=MAX_SPEED),
        ),
        unit=PrivacyUnit.SENSOR_TRAJECTORY,
        min_rows=windowing.steps,
        max_rows=windowing.steps,
        state=Column(
            name="density",
            unit="veh/km",
            lower=0.0,
            upper=JAM_VEHICLES_PER_KM_AND_LANE * windowing.lanes,
            description="All vehicles on the segment over its length, all lanes together.",
        ),
        title=title,
    )
