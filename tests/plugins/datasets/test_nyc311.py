from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from panelbench import DataError
from panelbench_datasets.nyc311 import SAMPLE, Nyc311

PORTAL = {
    "unique_key": "Unique Key",
    "created_date": "Created Date",
    "agency": "Agency",
    "complaint_type": "Complaint Type",
    "location_type": "Location Type",
    "bbl": "BBL",
    "borough": "Borough",
    "open_data_channel_type": "Open Data Channel Type",
    "latitude": "Latitude",
    "longitude": "Longitude",
}
LOTS = (1000010001, 2000010001, 3000010001)


def requests(lot, count=5, first=0, **changed):
    """Requests of one lot, an hour apart, in the interface's names and formats."""
    moments = pd.Timestamp("2024-10-01 22:30:00") + pd.to_timedelta(
        60 * np.arange(count), unit="min"
    )
    frame = pd.DataFrame(
        {
            "unique_key": [str(lot * 100 + first + number) for number in range(count)],
            "created_date": moments.strftime("%Y-%m-%dT%H:%M:%S.000"),
            "agency": "HPD",
            "complaint_type": "HEAT/HOT WATER",
            "location_type": "RESIDENTIAL BUILDING",
            "bbl": str(lot),
            "borough": "BRONX",
            "open_data_channel_type": "PHONE",
            "latitude": "40.7",
            "longitude": "-73.9",
        }
    )
    return frame.assign(**changed)


OTHERS = [requests(LOTS[0]), requests(LOTS[1])]


def load(folder, frames, **fields):
    pd.concat(frames).to_csv(folder / "311.csv", index=False)
    source = Nyc311(file="311.csv", test_share=0.5, **fields)
    return source.load(rng=np.random.default_rng(0))


def table(data, lot):
    everyone = pd.concat([data.train, data.test])
    return everyone[everyone["user"] == lot].reset_index(drop=True)


def test_portal_and_interface_names_give_the_same_tables(folder):
    expected = load(folder, OTHERS)
    frame = pd.concat(OTHERS)
    moment = pd.to_datetime(frame["created_date"]).dt.strftime("%m/%d/%Y %I:%M:%S %p")
    portal = frame.assign(created_date=moment).rename(columns=PORTAL)
    given = load(folder, [portal])
    assert given.train.equals(expected.train)
    assert given.repairs == expected.repairs


def test_time_counts_minutes_from_the_midnight_before_the_first_request(folder):
    given = table(load(folder, OTHERS), LOTS[0])
    assert given["time"].tolist() == [1350, 1410, 1470, 1530, 1590]


def test_requests_in_the_same_second_are_moved_a_second_apart(folder):
    same = requests(LOTS[2], 4, created_date="2024-10-01T12:00:00.000")
    data = load(folder, [*OTHERS, same])
    assert table(data, LOTS[2])["time"].tolist() == pytest.approx(
        [720, 720 + 1 / 60, 720 + 2 / 60, 720 + 3 / 60]
    )
    assert data.repairs["requests moved later, in the same second as another of the lot"] == 3


def test_requests_without_a_valid_lot_are_counted(folder):
    frames = [*OTHERS, requests(1, 2, bbl=""), requests(2, 3, bbl="0"), requests(3, 1, bbl="7e9")]
    data = load(folder, frames)
    assert data.repairs["requests without a BBL, left out"] == 2
    assert data.repairs["requests with an invalid BBL, left out"] == 4


@pytest.mark.parametrize("spelling", ["2000010001.0", "2,000,010,001", " 2000010001 "])
def test_a_lot_may_be_spelled_as_exports_do(folder, spelling):
    data = load(folder, [requests(LOTS[0]), requests(LOTS[1], bbl=spelling)])
    assert len(table(data, LOTS[1])) == 5


def test_entries_outside_the_vocabulary_are_counted(folder):
    odd = requests(LOTS[2], complaint_type="Snow", agency="XYZ", borough="", location_type="")
    data = load(folder, [*OTHERS, odd])
    given = table(data, LOTS[2]).iloc[0]
    assert given["complaint_type"] == "OTHER"
    assert given["agency"] == "OTHER"
    assert given["borough"] == "UNSPECIFIED"
    assert pd.isna(given["location_type"])
    assert data.repairs["complaint_type: not in the vocabulary, now OTHER"] == 5
    assert data.repairs["borough: missing, now UNSPECIFIED"] == 5


def test_spelling_of_complaints_differs_in_case_only(folder):
    data = load(folder, [*OTHERS, requests(LOTS[2], complaint_type="Noise - Residential")])
    assert table(data, LOTS[2])["complaint_type"].tolist() == ["NOISE - RESIDENTIAL"] * 5
    assert data.repairs["complaint_type: not in the vocabulary, now OTHER"] == 0


def test_repeated_keys_are_counted_and_change_nothing(folder):
    data = load(folder, [*OTHERS, OTHERS[0]])
    assert data.repairs["duplicated rows"] == 5
    assert len(table(data, LOTS[0])) == 5


def test_time_running_backwards_is_sorted_and_counted(folder):
    data = load(folder, [frame.iloc[::-1] for frame in OTHERS])
    assert data.repairs["rows with time running backwards, sorted"] == 8
    assert data.train.equals(load(folder, OTHERS).train)


def test_lots_with_one_request_and_requests_beyond_the_most_are_counted(folder):
    data = load(folder, [*OTHERS, requests(LOTS[2], 1), requests(4000010001, 60)])
    assert data.repairs["users with fewer than 4 rows, left out"] == 1
    assert data.repairs["rows after a user's first 50, left out"] == 10


def test_coordinates_outside_the_city_become_missing(folder):
    data = load(folder, [*OTHERS, requests(LOTS[2], latitude="0.0")], coordinates=True)
    assert table(data, LOTS[2])["latitude"].isna().all()
    assert data.repairs["latitude: out of range, now missing"] == 5
    assert table(data, LOTS[0])["longitude"].tolist() == [-73.9] * 5


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"bbl": "lot"}, "column 'bbl', row 11: expected a finite number, got 'lot'"),
        ({"created_date": "soon"}, "column 'created_date', row 11: expected a time like"),
        ({"created_date": ""}, "column 'created_date', row 11: expected a time like"),
    ],
)
def test_a_malformed_row_is_named(folder, bad, sentence):
    with pytest.raises(DataError, match=sentence):
        load(folder, [*OTHERS, requests(LOTS[2], 1, **bad)])


def test_a_renamed_column_is_answered_with_the_nearest(folder):
    renamed = pd.concat(OTHERS).rename(columns={"complaint_type": "complaints_type"})
    with pytest.raises(DataError, match="'complaint_type'; the nearest is 'complaints_type'"):
        load(folder, [renamed])


def test_a_file_without_any_lot_is_an_error(folder):
    with pytest.raises(DataError, match="column 'bbl': no valid lot"):
        load(folder, [requests(1, bbl="0")])


def test_truncated_and_other_files_are_named(folder):
    whole = gzip.compress(pd.concat(OTHERS * 200).to_csv(index=False).encode())
    (folder / "r.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="truncated or damaged gzip"):
        Nyc311(file="r.csv.gz").load(rng=np.random.default_rng(0))
    (folder / SAMPLE).parent.mkdir()
    (folder / SAMPLE).write_bytes(whole)
    with pytest.raises(DataError, match="has the sha256"):
        Nyc311().load(rng=np.random.default_rng(0))


def test_the_real_sample_has_the_lots_of_its_readme(real_data):
    real_data(SAMPLE)
    data = Nyc311(min_rows=2).load(rng=np.random.default_rng(0))
    assert data.train["user"].nunique() + data.test["user"].nunique() == 603
    assert pd.concat([data.train, data.test])["user"].value_counts().max() == 41
    assert data.repairs["requests without a BBL, left out"] == 4999 - 4463
    assert data.schema.nominal_users is None
