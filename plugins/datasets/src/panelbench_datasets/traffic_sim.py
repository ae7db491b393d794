"""Simulated congested traffic, as windows of sensor streams or as one table for each vehicle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from panelbench import (
    SENSOR_STREAMS,
    USER_TABLES,
    Column,
    ColumnKind,
    DatasetSource,
    PrivacyUnit,
    Schema,
    SensorStreams,
    UserTables,
)
from panelbench_datasets.files import Repairs
from panelbench_datasets.tables import split_users, within_rows
from panelbench_datasets.traffic import CAPS, LANES, MAX_SPEED, Tracks, simulate
from panelbench_datasets.windows import STEP_SECONDS, Period, Windowing, sensor_streams

VIEWS = {"streams": SENSOR_STREAMS, "tables": USER_TABLES}
FRAMES_PER_SECOND = round(1 / STEP_SECONDS)
LANE_NAMES = tuple(str(lane) for lane in range(1, LANES + 1))
MIN_ROWS = 4
NOMINAL_VEHICLES_PER_MINUTE = 130


@dataclass(frozen=True, kw_only=True)
class TrafficSim(DatasetSource):
    """Five lanes of IDM and MOBIL drivers behind a moving bottleneck, on a 400 m segment.

    View "streams": windows of `steps` steps of 0.2 s that do not overlap; the state is the number
    of all vehicles on the segment over its length (veh/km, all lanes together), the observations
    are position (m) and speed (m/s) of those that report. Each period is cut into three contiguous
    blocks, 80/10/10; the recording is longer than `minutes` by the two gaps between them, and no
    vehicle is in two splits.

    View "tables": one table for each vehicle, one row a second while it is on the segment.

    Attributes:
        view: "streams" or "tables".
        periods: How many independent periods, 1 to 3; each has a stronger bottleneck.
        minutes: Minutes of windows (streams) or recording (tables) in a period, after a warm-up.
        reporters: Share of vehicles that report, drawn once for each vehicle; streams only.
        steps: Steps of 0.2 s in a window; streams only.
        gap_seconds: Time between blocks of different splits (s); streams only.
        segment_m: Length of the segment (m), at most 1000.
        max_rows: Most rows of a table; later rows are left out and counted; tables only.
        test_share: Share of vehicles in test; tables only.
    """

    name: ClassVar[str] = "traffic-sim"

    view: str = "streams"
    periods: int = 3
    minutes: float = 15.0
    reporters: float = 1.0
    steps: int = 100
    gap_seconds: float = 120.0
    segment_m: float = 400.0
    max_rows: int = 150
    test_share: float = 0.1

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise ValueError(f"view must be one of {sorted(VIEWS)}, got {self.view!r}.")
        if not 1 <= self.periods <= len(CAPS):
            raise ValueError(f"periods must be 1 to {len(CAPS)}, got {self.periods}.")
        if not self.minutes > 0:
            raise ValueError(f"minutes must be positive, got {self.minutes}.")
        if not 0 < self.segment_m <= 1000:
            raise ValueError(f"segment_m must lie in (0, 1000], got {self.segment_m}.")
        if self.max_rows < MIN_ROWS:
            raise ValueError(f"max_rows must be at least {MIN_ROWS}, got {self.max_rows}.")
        if not 0 < self.test_share < 1:
            raise ValueError(f"test_share must lie in (0, 1), got {self.test_share}.")
        self._windowing()

    @property
    def kind(self) -> str:  # type: ignore[override]  # the contract lets a property compute it
        """What `load` returns, by the view."""
        return VIEWS[self.view]

    def _windowing(self) -> Windowing:
        return Windowing(
            steps=self.steps,
            segment_m=self.segment_m,
            lanes=LANES,
            reporters=self.reporters,
            gap_seconds=self.gap_seconds,
        )

    def load(self, *, rng: np.random.Generator) -> SensorStreams | UserTables:
        """Simulate; a period of 15 minutes takes a few seconds."""
        gaps = 2 * self.gap_seconds if self.view == "streams" else 0.0
        tracks = [
            simulate(
                seconds=60 * self.minutes + gaps,
                cap=CAPS[number],
                segment=self.segment_m,
                rng=rng,
            )
            for number in range(self.periods)
        ]
        if self.view == "tables":
            return self._tables(tracks, rng)
        return sensor_streams(
            [
                Period(
                    frame=part.frame,
                    vehicle=part.vehicle,
                    position=part.x,
                    speed=part.speed,
                    frames=part.frames,
                )
                for part in tracks
            ],
            self._windowing(),
            rng=rng,
            repairs=Repairs(),
            title="Simulated congested traffic, density from vehicle reports",
        )

    def _tables(self, tracks: list[Tracks], rng: np.random.Generator) -> UserTables:
        frames, first = [], 0
        for part in tracks:
            once = part.frame % FRAMES_PER_SECOND == 0
            frames.append(
                pd.DataFrame(
                    {
                        "user": part.vehicle[once] + first,
                        "time": part.frame[once] // FRAMES_PER_SECOND,
                        "position": part.x[once],
                        "speed": part.speed[once],
                        "lane": pd.Categorical.from_codes(
                            (part.lane[once] - 1).tolist(), categories=pd.Index(LANE_NAMES)
                        ),
                    }
                )
            )
            first += int(part.vehicle.max(initial=0)) + 1
        frame = pd.concat(frames, ignore_index=True).sort_values(["user", "time"])
        frame["time"] = frame.groupby("user").cumcount().astype(np.float64)
        schema = Schema(
            columns=(
                Column(name="position", unit="m", lower=0.0, upper=self.segment_m),
                Column(name="speed", unit="m/s", lower=0.0, upper=MAX_SPEED),
                Column(
                    name="lane",
                    kind=ColumnKind.CATEGORICAL,
                    categories=LANE_NAMES,
                    description="1 is the left lane.",
                ),
            ),
            unit=PrivacyUnit.USER,
            min_rows=MIN_ROWS,
            max_rows=self.max_rows,
            time_unit="second",
            nominal_users=NOMINAL_VEHICLES_PER_MINUTE * round(self.minutes) * self.periods,
            title="Simulated congested traffic, one table for each vehicle",
        )
        repairs = Repairs()
        frame = within_rows(frame, schema, repairs)
        train, test = split_users(frame, test_share=self.test_share, rng=rng)
        return UserTables(schema=schema, train=train, test=test, repairs=repairs.counts)
