from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from panelbench import DataError, Split
from panelbench_datasets.files import Repairs
from panelbench_datasets.ngsim import NATIVE, local_time, read_recordings
from panelbench_datasets.us101 import SAMPLE, Us101

FIRST_ROW = (
    "2 13 437 1118846980200 16.467 35.381 6451137.641 1873344.962 "
    "14.5 4.9 2 40.00 0.00 2 0 0 0.00 0.00"
)
ZONES = ["O_Zone", "D_Zone", "Int_ID", "Section_ID", "Direction", "Movement"]
DUPLICATED, BACKWARDS = "duplicated rows", "rows with time running backwards, sorted"
ODD = "rows with a position or speed missing or out of range, left out"
SHORT = {"file": "us.csv", "steps": 25, "gap_seconds": 30.0}


def vehicles(seconds=200, every=5.0, speed=50.0, start=1118846980200):
    """Vehicles at 50 ft/s, one every 5 s, sorted by vehicle as the official files are."""
    parts = []
    for number in range(int(seconds / every)):
        entry = round(number * every * 10)
        frame = np.arange(entry, min(entry + round(2100 / speed * 10), seconds * 10))
        parts.append(
            pd.DataFrame(
                {
                    "Vehicle_ID": number + 2,
                    "Frame_ID": frame + 13,
                    "Total_Frames": len(frame),
                    "Global_Time": start + 100 * frame,
                    "Local_X": 16.467,
                    "Local_Y": (frame - entry) * speed / 10,
                    "Global_X": 6451137.641,
                    "Global_Y": 1873344.962,
                    "v_Length": 14.5,
                    "v_Width": 4.9,
                    "v_Class": 2,
                    "v_Vel": speed,
                    "v_Acc": 0.0,
                    "Lane_ID": number % 5 + 1,
                    "Preceding": 0,
                    "Following": 0,
                    "Space_Headway": 0.0,
                    "Time_Headway": 0.0,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)[NATIVE]


def load(frame, folder, **fields):
    frame.to_csv(folder / "us.csv", index=False)
    return Us101(**{**SHORT, **fields}).load(rng=np.random.default_rng(0))


def read(path, **fields):
    given = {"file": path.name, "location": "us-101", "lanes": 5, "repairs": Repairs(), **fields}
    return read_recordings(path, **given)


def test_p26_the_first_row_is_10_784_m_at_12_192_m_per_s_at_07_49_40_2(tmp_path):
    """Failed when a foot was 1 / 3.281 m."""
    path = tmp_path / "native.txt"
    path.write_text(FIRST_ROW + "\n")
    (recording,) = read(path)
    assert recording.position[0] == pytest.approx(10.784, abs=5e-4)
    assert recording.speed[0] == pytest.approx(12.192, abs=1e-9)
    assert local_time(recording.start_ms) == "2005-06-15T07:49:40.200-07:00"


def test_p25_no_vehicle_is_in_two_splits_and_no_window_crosses_a_block(folder):
    """Failed when blocks had no gap between them."""
    data = load(vehicles(), folder)
    seen = {split: set() for split in Split}
    spans = {split: [] for split in Split}
    for window, split in zip(data.extra["windows"], data.split, strict=True):
        seen[Split(split)] |= {(window["period"], v) for v in window["vehicles"]}
        spans[Split(split)] += [window["start"], window["start"] + 25]
    assert not seen[Split.TRAIN] & seen[Split.VALIDATION]
    assert not seen[Split.TRAIN] & seen[Split.TEST]
    assert not seen[Split.VALIDATION] & seen[Split.TEST]
    assert max(spans[Split.TRAIN]) + 150 <= min(spans[Split.VALIDATION])
    assert max(spans[Split.VALIDATION]) + 150 <= min(spans[Split.TEST])


def portal(frame, zones):
    """The portal's layout: six zone columns or none, and a Location."""
    result = frame.assign(Location="us-101")
    for name in reversed(zones):
        result.insert(list(result.columns).index("Lane_ID") + 1, name, "")
    return result


LAYOUTS = {
    "native text": lambda frame, path: frame.to_csv(path, sep=" ", header=False, index=False),
    "native text with wide spaces": lambda frame, path: path.write_text(
        frame.to_string(header=False, index=False)
    ),
    "portal with 25 columns": lambda frame, path: portal(frame, ZONES).to_csv(path, index=False),
    "portal with 19 columns": lambda frame, path: portal(frame, []).to_csv(path, index=False),
    "other capitals": lambda frame, path: frame.rename(columns=str.lower).to_csv(path, index=False),
    "shuffled columns": lambda frame, path: frame[NATIVE[::-1]].to_csv(path, index=False),
    "thousands commas": lambda frame, path: frame.assign(
        Global_Time=frame["Global_Time"].map("{:,}".format),
        Local_Y=frame["Local_Y"].map("{:,.3f}".format),
    ).to_csv(path, index=False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_recording(layout, tmp_path):
    frame = vehicles(seconds=60)
    frame.to_csv(tmp_path / "plain.csv", index=False)
    LAYOUTS[layout](frame, tmp_path / "other.csv")
    (expected,), (given,) = read(tmp_path / "plain.csv"), read(tmp_path / "other.csv")
    assert given.start_ms == expected.start_ms
    for name in ("time_ms", "vehicle", "position", "speed"):
        assert np.array_equal(getattr(given, name), getattr(expected, name))


def test_parquet_and_gzip_text_are_read_too(tmp_path):
    frame = vehicles(seconds=30)
    frame.to_parquet(tmp_path / "us.parquet")
    with gzip.open(tmp_path / "us.txt.gz", "wt") as stream:
        frame.to_csv(stream, sep=" ", header=False, index=False)
    (one,), (two,) = read(tmp_path / "us.parquet"), read(tmp_path / "us.txt.gz")
    assert np.array_equal(one.position, two.position)


def test_the_same_number_in_another_period_is_another_vehicle(folder):
    later = vehicles(start=1118846980200 + 900_000)
    data = load(pd.concat([vehicles(), later]), folder, periods=2)
    assert {window["period"] for window in data.extra["windows"]} == {0, 1}
    assert data.extra["periods"][1] == "2005-06-15T08:04:40.200-07:00"
    assert data.state[:, 0].max() < 2 * 1000 * 6 / 400 * 3


def test_density_counts_all_vehicles_and_reporters_are_some_of_them(folder):
    full, part = load(vehicles(), folder), load(vehicles(), folder, reporters=0.3)
    assert np.array_equal(full.state, part.state)
    assert part.present.sum() < full.present.sum()
    assert full.present.sum(axis=2) / 0.4 == pytest.approx(full.state)
    # 400 m at 15.24 m/s are 26 s, so 5.2 vehicles at one every 5 s: 13.1 veh/km.
    assert full.state.mean() == pytest.approx(13.1, abs=0.3)


def test_positions_are_metres_from_the_start_of_the_segment(folder):
    data = load(vehicles(), folder)
    seen = data.observations[data.present]
    assert 0 <= seen[:, 0].min() <= 3.1
    assert 396.9 <= seen[:, 0].max() <= 400
    assert seen[:, 1] == pytest.approx(50 * 0.3048)


def test_steps_are_a_fifth_of_a_second(folder):
    data = load(vehicles(), folder)
    ahead = np.diff(data.observations[0, :, :, 0], axis=0)
    assert ahead[np.isfinite(ahead)] == pytest.approx(50 * 0.3048 * 0.2)


def test_the_ramps_at_both_ends_are_trimmed_and_counted(folder):
    frame = vehicles(seconds=400)
    frame = frame[frame["Vehicle_ID"] < 62]  # the last entries are missing: it empties
    data = load(frame, folder)
    assert 15 <= data.repairs["seconds trimmed while the segment filled up"] <= 45
    assert data.state.min() > 0.6 * np.median(data.state)


def test_lanes_beyond_the_chosen_ones_are_left_out_and_counted(folder):
    all_lanes, three = load(vehicles(), folder), load(vehicles(), folder, lanes=3)
    assert three.repairs["rows outside lanes 1 to 3, left out"] > 0
    assert three.state.mean() < all_lanes.state.mean()


def test_other_sites_are_left_out_and_counted(folder):
    frame = portal(vehicles(), ZONES)
    other = frame.assign(Location="i-80", Vehicle_ID=frame["Vehicle_ID"] + 5000)
    data = load(pd.concat([frame, other]), folder)
    assert data.repairs["rows of other locations, left out"] == len(frame)
    with pytest.raises(DataError, match=r"column 'Location': no row is 'us-101'"):
        load(other, folder)


def test_duplicated_rows_are_counted_and_change_nothing(folder):
    frame = vehicles()
    twice = load(pd.concat([frame, frame.iloc[:50]]), folder)
    assert twice.repairs[DUPLICATED] == 50
    assert np.array_equal(twice.state, load(frame, folder).state)


def test_time_running_backwards_is_sorted_and_counted(folder):
    frame = vehicles()
    data = load(frame.iloc[::-1], folder)
    assert data.repairs[BACKWARDS] == len(frame) - frame["Vehicle_ID"].nunique()
    assert np.array_equal(data.state, load(frame, folder).state)


def test_impossible_and_missing_positions_and_speeds_are_counted(folder):
    frame = vehicles()
    frame.loc[0, "Local_Y"] = np.nan
    frame.loc[1, "v_Vel"] = 400.0
    frame.loc[2, "Local_Y"] = 9e5
    assert load(frame, folder).repairs[ODD] == 3


def test_a_vehicle_with_one_row_is_one_observation(folder):
    frame = vehicles()
    middle = frame[(frame["Global_Time"] == 1118846980200 + 100_000)].iloc[:1]
    extra = middle.assign(Vehicle_ID=9999, Local_Y=1000.0)
    data = load(pd.concat([frame, extra]), folder)
    base = load(frame, folder)
    assert abs(data.state.sum() - base.state.sum()) <= 2.5 + 1e-9


def test_a_missing_number_is_named_by_its_row(folder):
    frame = vehicles(seconds=20).astype({"Vehicle_ID": object})
    frame.loc[4, "Vehicle_ID"] = ""
    with pytest.raises(DataError, match=r"'us.csv', column 'Vehicle_ID', row 5: expected a number"):
        load(frame, folder)


def test_a_renamed_column_is_answered_with_the_nearest(folder):
    with pytest.raises(DataError, match=r"no column 'Local_Y'; the nearest is 'Local_YY'"):
        load(vehicles(seconds=20).rename(columns={"Local_Y": "Local_YY"}), folder)


def test_native_text_with_another_number_of_columns_is_refused(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("1 2 3\n")
    with pytest.raises(DataError, match=r"row 1: expected the 18 columns .* got 3 values"):
        read(path)


def test_a_truncated_gzip_file_is_said_to_be_one(tmp_path):
    whole = gzip.compress(vehicles().to_csv(index=False).encode())
    path = tmp_path / "us.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="truncated or damaged gzip"):
        read(path)


def test_another_file_under_the_name_of_the_sample_is_refused(folder):
    (folder / SAMPLE).parent.mkdir()
    vehicles(seconds=20).to_parquet(folder / SAMPLE)
    with pytest.raises(DataError, match="has the sha256"):
        Us101().load(rng=np.random.default_rng(0))


def test_more_periods_than_there_are_is_an_error(folder):
    with pytest.raises(DataError, match="holds 1 periods, expected 3"):
        load(vehicles(), folder, periods=3)


@pytest.mark.parametrize(
    "fields", [{"periods": 0}, {"lanes": 9}, {"split": "random"}, {"reporters": 1.5}]
)
def test_an_impossible_field_is_refused_at_birth(fields):
    with pytest.raises(ValueError, match="got"):
        Us101(**fields)


def test_the_papers_random_split_uses_every_window(folder):
    data = load(vehicles(), folder, split="paper-random")
    assert len(data.split) > len(load(vehicles(), folder).split)


def test_the_real_sample_is_cut_into_blocks_without_a_shared_vehicle(real_data):
    real_data(SAMPLE)
    data = Us101().load(rng=np.random.default_rng(0))
    assert [len(data.episodes(split)) for split in Split] == [30, 4, 4]
    # The sample's own readme counts 10.85 vehicles on the segment, 27.1 veh/km.
    assert data.state.mean() == pytest.approx(27.1, rel=0.1)
    assert data.extra["periods"] == ["2005-06-15T07:49:45.200-07:00"]
    assert data.repairs[DUPLICATED] == data.repairs[BACKWARDS] == data.repairs[ODD] == 0


def test_the_real_sample_has_three_periods(real_data):
    path = real_data(SAMPLE)
    assert [len(np.unique(part.vehicle)) for part in read(path)] == [290, 67, 13]
