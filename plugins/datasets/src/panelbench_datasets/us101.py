"""The NGSIM US-101 trajectories as windows of sensor streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import SENSOR_STREAMS, DataError, DataFile, DatasetSource
from panelbench_datasets.files import Repairs, locate
from panelbench_datasets.ngsim import Recording, local_time, read_recordings
from panelbench_datasets.windows import STEP_SECONDS, Period, Windowing, sensor_streams

if TYPE_CHECKING:
    from panelbench import SensorStreams

SAMPLE = "ngsim-us101-sample/us101_sample_370veh.parquet"
SAMPLE_SHA256 = "0b615b25d5fdec7e0682567d1b34a4b7568216980db7b7646b2d01bd441ddb70"
LOCATION = "us-101"
SPLITS = ("blocked", "paper-random")
STEP_MS = round(1000 * STEP_SECONDS)
TRIM_SHARE, TRIM_SECONDS, TRIM_MEDIAN_SECONDS = 0.9, (5.0, 20.0), 300.0


def every_second_moment(recording: Recording, start_m: float, segment_m: float) -> Period:
    """The rows on the segment, 0.2 s apart, anchored at the recording's first moment."""
    frames = int(recording.time_ms.max()) // STEP_MS + 1
    kept = recording.time_ms % STEP_MS == 0
    kept &= (recording.position >= start_m) & (recording.position <= start_m + segment_m)
    return Period(
        frame=recording.time_ms[kept] // STEP_MS,
        vehicle=recording.vehicle[kept],
        position=recording.position[kept] - start_m,
        speed=recording.speed[kept],
        frames=frames,
    )


def trimmed(period: Period, repairs: Repairs) -> Period:
    """The period without its fill-up and its empty-out.

    Only vehicles that drove the whole section were recorded, so the count rises from zero at the
    start of a file and falls to zero at its end. A start is over where the mean counts of 5 s and
    of 20 s reach 90 % of the median count of the 300 s that follow; an end likewise, backwards.

    Raises:
        DataError: Where nothing is left.
    """
    counts = np.bincount(period.frame, minlength=period.frames).astype(np.float64)
    first = _settled(counts)
    last = period.frames - _settled(counts[::-1])
    if last <= first:
        raise DataError("The vehicle count never settles, so no part of the period can be used.")
    repairs.add("seconds trimmed while the segment filled up", round(first * STEP_SECONDS))
    repairs.add(
        "seconds trimmed while the segment emptied", round((period.frames - last) * STEP_SECONDS)
    )
    kept = (period.frame >= first) & (period.frame < last)
    return Period(
        frame=period.frame[kept] - first,
        vehicle=period.vehicle[kept],
        position=period.position[kept],
        speed=period.speed[kept],
        frames=last - first,
    )


def _settled(counts: np.ndarray) -> int:
    """First frame from which the count is no longer filling up."""
    shorts = [round(seconds / STEP_SECONDS) for seconds in TRIM_SECONDS]
    long = round(TRIM_MEDIAN_SECONDS / STEP_SECONDS)
    for at in range(0, max(1, len(counts) - max(shorts)), 5):
        needed = TRIM_SHARE * np.median(counts[at : at + long])
        if needed > 0 and min(counts[at : at + short].mean() for short in shorts) >= needed:
            return at
    return len(counts)


@dataclass(frozen=True, kw_only=True)
class Us101(DatasetSource):
    """NGSIM US-101: density on a 400 m segment from the reports of vehicles, in windows of 20 s.

    The state counts every vehicle of the file on the segment (veh/km, all lanes together);
    observations are position in the segment (m) and speed (m/s) of those that report. Tracks have
    one row in 0.2 s. Periods are trimmed at both ends and cut into contiguous blocks of 80, 10 and
    10 % with a gap; windows that would put a vehicle into two splits are left out and counted.
    Duplicated rows, rows out of order, and rows with a missing or impossible position or speed are
    counted too. A vehicle with one row is one observation.

    The default file is a sample of 370 vehicles: real tracks, but about 13 % of the traffic of the
    first period and far less of the others, so its "density" is that of the sample. For the full
    data name the portal's CSV, or the three native text files concatenated, and set `periods` = 3.

    `extra["periods"]` holds the local start of each period, `extra["windows"]` the period, first
    frame and vehicles of each window.

    Attributes:
        file: Path below the data directory.
        periods: Use the first this many periods of 15 minutes.
        segment_start_m: Start of the segment, Local_Y in metres.
        segment_m: Length of the segment (m).
        lanes: Keep lanes 1 to this one (6 is the auxiliary lane), where the file has lane numbers.
        reporters: Share of vehicles that report, drawn once for each vehicle.
        steps: Steps of 0.2 s in a window.
        gap_seconds: Least time between blocks of different splits (s).
        split: "blocked", or "paper-random" to shuffle windows, which shares vehicles among splits.
    """

    name: ClassVar[str] = "us101"
    kind: ClassVar[str] = SENSOR_STREAMS

    file: str = SAMPLE
    periods: int = 1
    segment_start_m: float = 120.0
    segment_m: float = 400.0
    lanes: int = 5
    reporters: float = 1.0
    steps: int = 100
    gap_seconds: float = 60.0
    split: str = "blocked"

    def __post_init__(self) -> None:
        if self.periods < 1:
            raise ValueError(f"periods must be at least 1, got {self.periods}.")
        if not 1 <= self.lanes <= 8:
            raise ValueError(f"lanes must be 1 to 8, got {self.lanes}.")
        if self.split not in SPLITS:
            raise ValueError(f"split must be one of {SPLITS}, got {self.split!r}.")
        self._windowing()

    def _windowing(self) -> Windowing:
        return Windowing(
            steps=self.steps,
            segment_m=self.segment_m,
            lanes=self.lanes,
            reporters=self.reporters,
            gap_seconds=self.gap_seconds,
            blocked=self.split == "blocked",
        )

    def files(self) -> tuple[DataFile, ...]:
        """The trajectories."""
        return (
            DataFile(
                path=self.file,
                sha256=SAMPLE_SHA256 if self.file == SAMPLE else None,
                instructions=(
                    "Take 'NGSIM Vehicle Trajectories and Supporting Data' (8ect-6jqj) from "
                    "data.transportation.gov, or a sample of it in the same columns."
                ),
            ),
        )

    def load(self, *, rng: np.random.Generator) -> SensorStreams:
        """Read, repair, cut into windows and split."""
        (wanted,) = self.files()
        repairs = Repairs()
        recordings = read_recordings(
            locate(wanted), file=self.file, location=LOCATION, lanes=self.lanes, repairs=repairs
        )
        if len(recordings) < self.periods:
            raise DataError(
                f"File '{self.file}' holds {len(recordings)} periods, expected {self.periods}; "
                f"set periods to what there is."
            )
        used = recordings[: self.periods]
        return sensor_streams(
            [
                trimmed(every_second_moment(part, self.segment_start_m, self.segment_m), repairs)
                for part in used
            ],
            self._windowing(),
            rng=rng,
            repairs=repairs,
            title="Density on US-101 from vehicle reports (NGSIM)",
            extra={"periods": [local_time(part.start_ms) for part in used]},
        )
