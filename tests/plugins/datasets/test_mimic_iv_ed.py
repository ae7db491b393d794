from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from panelbench import DataError
from panelbench_datasets.mimic_iv_ed import DEMO, MimicIvEd

HEADER = "subject_id,stay_id,charttime,temperature,heartrate,resprate,o2sat,sbp,dbp,rhythm,pain"


def row(subject, minute, **changed):
    """One official row; `minute` counts from 23:00 on a day of the publisher's shifted calendar."""
    moment = pd.Timestamp("2180-05-06 23:00:00") + pd.Timedelta(minutes=minute)
    values = {
        "subject_id": subject,
        "stay_id": 30000000,
        "charttime": moment.strftime("%Y-%m-%d %H:%M:%S"),
        "temperature": 98.6,
        "heartrate": 80.0,
        "resprate": 18.0,
        "o2sat": 99.0,
        "sbp": 120.0,
        "dbp": 70.0,
        "rhythm": "",
        "pain": "0",
    }
    return ",".join(str(value) for value in {**values, **changed}.values())


def ordinary(subject, count=5, **changed):
    return [row(subject, 60 * number, **changed) for number in range(count)]


OTHERS = [*ordinary(1), *ordinary(2)]


def load(folder, rows, header=HEADER, **fields):
    (folder / "vitalsign.csv").write_text("\n".join([header, *rows]) + "\n")
    source = MimicIvEd(file="vitalsign.csv", test_share=0.5, **fields)
    return source.load(rng=np.random.default_rng(0))


def table(data, subject):
    everyone = pd.concat([data.train, data.test])
    return everyone[everyone["user"] == subject].reset_index(drop=True)


def test_time_counts_minutes_from_the_midnight_before_the_first_row(folder):
    given = table(load(folder, OTHERS), 1)
    assert given["time"].tolist() == [1380, 1440, 1500, 1560, 1620]


def test_all_stays_of_a_patient_are_one_table(folder):
    rows = [*ordinary(3, 3), *[row(3, 10_000 + n, stay_id=30000001) for n in range(3)]]
    assert len(table(load(folder, OTHERS + rows), 3)) == 6


def test_celsius_is_converted_and_counted(folder):
    data = load(folder, [*OTHERS, *ordinary(3, temperature=37.0)])
    assert table(data, 3)["temperature"].tolist() == [98.6] * 5
    assert data.repairs["temperature: Celsius converted to Fahrenheit"] == 5


@pytest.mark.parametrize(
    ("given", "expected", "words"),
    [
        ("8", 8, 0),
        ("8.5", 8.5, 0),
        ("0/10", 0, 0),
        ("unable", np.nan, 5),
        ("", np.nan, 0),
        ("5-6", np.nan, 5),
    ],
)
def test_pain_is_a_number_or_missing(folder, given, expected, words):
    data = load(folder, [*OTHERS, *ordinary(3, pain=given)])
    assert table(data, 3)["pain"].iloc[0] == pytest.approx(expected, nan_ok=True)
    assert data.repairs["pain: free text, now missing"] == words


def test_pain_of_13_is_out_of_range(folder):
    data = load(folder, [*OTHERS, *ordinary(3, pain="13")])
    assert table(data, 3)["pain"].isna().all()
    assert data.repairs["pain: out of range, now missing"] == 5


@pytest.mark.parametrize(
    ("given", "expected"),
    [("afib", "Atrial Fibrillation"), ("Normal Sinus Rhythm", "Sinus Rhythm"), ("odd", "Other")],
)
def test_rhythms_are_spelled_as_in_the_public_vocabulary(folder, given, expected):
    data = load(folder, [*OTHERS, *ordinary(3, rhythm=given)])
    assert table(data, 3)["rhythm"].tolist() == [expected] * 5
    assert data.repairs["rhythm: unknown spelling, now Other"] == (5 if expected == "Other" else 0)


def test_impossible_values_become_missing_and_are_counted(folder):
    data = load(folder, [*OTHERS, *ordinary(3, sbp=1200.0, o2sat=10.0)])
    assert table(data, 3)[["sbp", "o2sat"]].isna().all().all()
    assert data.repairs["sbp: out of range, now missing"] == 5
    assert data.repairs["o2sat: out of range, now missing"] == 5


def test_duplicated_rows_are_counted_and_change_nothing(folder):
    data = load(folder, [*OTHERS, *ordinary(3), *ordinary(3)])
    assert data.repairs["duplicated rows"] == 5
    assert len(table(data, 3)) == 5


def test_rows_at_the_same_time_are_merged_and_counted(folder):
    rows = [*ordinary(3), row(3, 60, heartrate=99.0, sbp="")]
    data = load(folder, OTHERS + rows)
    merged = table(data, 3).iloc[1]
    assert (merged["heartrate"], merged["sbp"]) == (99, 120)
    assert data.repairs["rows of one patient at the same time, merged"] == 1


def test_time_running_backwards_is_sorted_and_counted(folder):
    data = load(folder, [*OTHERS, *ordinary(3)[::-1]])
    assert data.repairs["rows with time running backwards, sorted"] == 4
    assert table(data, 3)["time"].is_monotonic_increasing


def test_patients_with_few_rows_and_rows_beyond_the_most_are_counted(folder):
    data = load(folder, [*OTHERS, *ordinary(3, 1), *ordinary(4, 60)])
    assert data.repairs["users with fewer than 4 rows, left out"] == 1
    assert data.repairs["rows after a user's first 50, left out"] == 10
    assert len(table(data, 3)) == 0
    assert len(table(data, 4)) == 50


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"subject_id": ""}, "column 'subject_id', row 11: expected a number, not a missing"),
        ({"charttime": "noon"}, "column 'charttime', row 11: expected a time like .* 'noon'"),
        ({"charttime": ""}, "column 'charttime', row 11: expected a time"),
        ({"heartrate": "fast"}, "column 'heartrate', row 11: expected a finite number, got 'fast'"),
        ({"sbp": "inf"}, "column 'sbp', row 11: expected a finite number"),
        ({"pain": "0,extra"}, "Expected 11 columns, got 12"),
    ],
)
def test_a_malformed_row_is_named(folder, bad, sentence):
    with pytest.raises(DataError, match=sentence):
        load(folder, [*OTHERS, row(3, 0, **bad)])


def test_a_renamed_column_is_answered_with_the_nearest(folder):
    with pytest.raises(DataError, match=r"no column 'heartrate'; the nearest is 'heart_rates'"):
        load(folder, OTHERS, header=HEADER.replace("heartrate", "heart_rates"))


def test_one_patient_alone_cannot_be_split(folder):
    with pytest.raises(DataError, match="at least 2 are needed"):
        load(folder, ordinary(1))


def test_empty_headed_and_truncated_files_are_named(folder):
    with pytest.raises(DataError, match="has a header but no rows"):
        load(folder, [])
    (folder / "vitalsign.csv").touch()
    (folder / "vitalsign.csv").write_bytes(b"")
    with pytest.raises(DataError, match=r"'vitalsign.csv' is empty"):
        MimicIvEd(file="vitalsign.csv").load(rng=np.random.default_rng(0))
    rows = [line for subject in range(400) for line in ordinary(subject)]
    whole = gzip.compress("\n".join([HEADER, *rows]).encode())
    (folder / "v.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="truncated or damaged gzip"):
        MimicIvEd(file="v.csv.gz").load(rng=np.random.default_rng(0))


def test_another_file_under_the_name_of_the_demo_is_refused(folder):
    (folder / DEMO).parent.mkdir()
    (folder / DEMO).write_bytes(b"other")
    with pytest.raises(DataError, match="has the sha256"):
        MimicIvEd().load(rng=np.random.default_rng(0))


def test_the_real_demo_has_the_papers_filter_applied(real_data):
    real_data(DEMO)
    data = MimicIvEd().load(rng=np.random.default_rng(0))
    lengths = pd.concat([data.train, data.test])["user"].value_counts()
    assert len(lengths) == 54 - 10
    assert lengths.between(4, 50).all()
    assert lengths.sum() == 1038 - 130 - 26
    assert data.schema.nominal_users == 100
    assert data.repairs["sbp: out of range, now missing"] == 1  # the 11 that the readme mentions
    assert data.train["heartrate"].mean() == pytest.approx(86, abs=2)
