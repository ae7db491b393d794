"""Reading NGSIM vehicle trajectories in their official layouts, in metres and seconds.

Layouts: native text (18 columns, white space, no header); the portal's CSV with a header in any
capitalization, with or without zone columns; Parquet with the same names. Lengths are feet there;
1 ft is 0.3048 m exactly. Global_Time is milliseconds since 1970 in UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from panelbench import DataError
from panelbench_datasets.files import (
    READ_ERRORS,
    damaged,
    identifiers,
    numbers,
    read_csv,
    read_table,
    without_duplicates,
)
from panelbench_datasets.traffic import MAX_SPEED

if TYPE_CHECKING:
    from pathlib import Path

    from panelbench_datasets.files import Repairs

FOOT = 0.3048
PACIFIC = timezone(timedelta(hours=-7), "PDT")
NATIVE = [
    "Vehicle_ID",
    "Frame_ID",
    "Total_Frames",
    "Global_Time",
    "Local_X",
    "Local_Y",
    "Global_X",
    "Global_Y",
    "v_Length",
    "v_Width",
    "v_Class",
    "v_Vel",
    "v_Acc",
    "Lane_ID",
    "Preceding",
    "Following",
    "Space_Headway",
    "Time_Headway",
]
REQUIRED = ("Vehicle_ID", "Frame_ID", "Global_Time", "Local_Y", "v_Vel")
OPTIONAL = ("Lane_ID", "Location")
# Frame_ID counts 0.1 s from the start of a period, so Global_Time // 100 - Frame_ID is constant in
# it; starts of periods are 9,000 frames apart.
PERIOD_FRAMES = 3000
MAX_POSITION = 1000.0


def local_time(milliseconds: int) -> str:
    """A Global_Time as local time of the site.

    >>> local_time(1118846980200)
    '2005-06-15T07:49:40.200-07:00'
    """
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=PACIFIC)
    return moment.isoformat(timespec="milliseconds")


def _raw(path: Path, file: str) -> pd.DataFrame:
    """The columns we need under their native names, still in feet."""
    if path.suffix == ".parquet":
        return read_table(path, REQUIRED, OPTIONAL, file=file)
    try:
        with pa.input_stream(str(path)) as stream:
            first = stream.read(4096).split(b"\n", 1)[0].decode()
            if any(letter.isalpha() for letter in first):
                return read_table(path, REQUIRED, OPTIONAL, file=file)
        values = len(first.split())
        if values != len(NATIVE):
            raise DataError(
                f"File '{file}', row 1: expected the {len(NATIVE)} columns of the native text "
                f"layout ({', '.join(NATIVE)}) or a header with their names, got {values} values."
            )
        with pa.input_stream(str(path)) as stream:
            text = re.sub(rb"(?m)^[ \t]+|[ \t\r]+$", b"", stream.read())
        commas = pa.BufferReader(re.sub(rb"[ \t]+", b",", text))
        return read_csv(commas, [*REQUIRED, "Lane_ID"], names=NATIVE)
    except READ_ERRORS as error:
        raise damaged(file, error) from error


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One period of vehicles, one row a vehicle and moment, sorted by (time, vehicle).

    Attributes:
        start_ms: First Global_Time of the period.
        time_ms: Milliseconds since `start_ms`.
        vehicle: Vehicle_ID; the same number in another period is another vehicle.
        position: Local_Y in metres.
        speed: v_Vel in m/s.
    """

    start_ms: int
    time_ms: np.ndarray
    vehicle: np.ndarray
    position: np.ndarray
    speed: np.ndarray


def read_recordings(
    path: Path, *, file: str, location: str, lanes: int, repairs: Repairs
) -> list[Recording]:
    """All periods of a file in the order of their start.

    Args:
        path: The file.
        file: How messages call it.
        location: Rows of other locations are left out, where the file has that column.
        lanes: Lanes 1 to this one are kept, where the file has lane numbers.
        repairs: Where what was left out is counted.

    Raises:
        DataError: On a malformed file, or where nothing is left.
    """
    raw = _raw(path, file)
    if "Location" in raw:
        elsewhere = raw["Location"].astype(str).str.strip().str.lower() != location
        repairs.add("rows of other locations, left out", elsewhere.sum())
        raw = raw[~elsewhere]
        if not len(raw):
            raise DataError(
                f"File '{file}', column 'Location': no row is '{location}'; expected that site."
            )
    frame = pd.DataFrame(
        {
            "vehicle": identifiers(raw, "Vehicle_ID", file=file),
            "time": identifiers(raw, "Global_Time", file=file),
            "offset": identifiers(raw, "Frame_ID", file=file),
            "position": numbers(raw, "Local_Y", file=file) * FOOT,
            "speed": numbers(raw, "v_Vel", file=file) * FOOT,
        },
        index=raw.index,
    )
    if "Lane_ID" in raw:
        lane = numbers(raw, "Lane_ID", file=file, required=True)
        repairs.add(
            f"rows outside lanes 1 to {lanes}, left out", ((lane < 1) | (lane > lanes)).sum()
        )
        frame = frame[(lane >= 1) & (lane <= lanes)]
    frame["offset"] = frame["time"] // 100 - frame["offset"]
    odd = ~(frame["position"].abs() <= MAX_POSITION) | ~frame["speed"].between(0, MAX_SPEED)
    repairs.add("rows with a position or speed missing or out of range, left out", odd.sum())
    frame = frame[~odd]
    if not len(frame):
        raise DataError(f"File '{file}': no row is left after the filters; expected vehicles.")
    starts = np.unique(frame["offset"].to_numpy())
    number = np.concatenate([[0], (np.diff(starts) > PERIOD_FRAMES).cumsum()])
    frame["period"] = number[np.searchsorted(starts, frame["offset"].to_numpy())]
    before = frame.groupby(["period", "vehicle"], sort=False)["time"].shift(1)
    repairs.add("rows with time running backwards, sorted", (frame["time"] < before).sum())
    frame = without_duplicates(frame, ["period", "vehicle", "time"], repairs)
    frame = frame.sort_values(["period", "time", "vehicle"], kind="stable")
    return [_recording(part) for _, part in frame.groupby("period")]


def _recording(part: pd.DataFrame) -> Recording:
    start = int(part["time"].iloc[0])
    return Recording(
        start_ms=start,
        time_ms=part["time"].to_numpy() - start,
        vehicle=part["vehicle"].to_numpy(),
        position=part["position"].to_numpy(),
        speed=part["speed"].to_numpy(),
    )
