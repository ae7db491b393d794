from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from panelbench import DataError
from panelbench_datasets.physionet2012 import SAMPLE, Physionet2012

HEADER = "Time,Parameter,Value"


def patient(folder, record, rows):
    """One official text file: descriptors at 00:00, then the rows."""
    general = [
        f"00:00,RecordID,{record}",
        "00:00,Age,54",
        "00:00,Gender,0",
        "00:00,Height,-1",
        "00:00,ICUType,4",
        "00:00,Weight,-1",
    ]
    path = folder / "set-a" / f"{record}.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([HEADER, *general, *rows]) + "\n")


def hourly(hours, value=80, minute=7):
    return [f"{hour:02d}:{minute:02d},HR,{value + hour}" for hour in hours]


def load(**fields):
    return Physionet2012(file="set-a", test_share=0.5, **fields).load(rng=np.random.default_rng(0))


@pytest.fixture
def others(folder):
    """Two ordinary patients, so that there is something to split."""
    patient(folder, 132539, hourly(range(5)))
    patient(folder, 132540, hourly(range(6)))
    return folder


def table(data, record):
    everyone = pd.concat([data.train, data.test])
    return everyone[everyone["user"] == record].reset_index(drop=True)


def test_the_last_valid_measurement_of_an_hour_counts(others):
    rows = [*hourly(range(1, 5)), "00:10,HR,70", "00:50,HR,75", "00:55,HR,0"]
    patient(others, 132541, rows)
    data = load()
    assert table(data, 132541)["HR"].tolist() == [75, 81, 82, 83, 84]
    assert data.repairs["measurements followed by a later one in the same hour"] == 1
    assert data.repairs["HR: out of range, now missing"] == 1


def test_the_arterial_line_beats_the_cuff_in_its_hour(others):
    rows = [*hourly(range(4)), "00:10,SysABP,120", "00:50,NISysABP,110", "01:30,NISysABP,111"]
    patient(others, 132541, rows)
    data = load()
    assert table(data, 132541)["SysBP"].tolist()[:2] == [120, 111]
    assert data.repairs["SysBP: hours with a cuff value beside the arterial line's"] == 1


def test_a_table_runs_from_the_first_measured_hour_to_the_last(others):
    patient(others, 132541, hourly([3, 4, 8, 9]))
    data = load()
    given = table(data, 132541)
    assert given["time"].tolist() == list(range(7))
    assert np.isnan(given["HR"]).tolist() == [False, False, True, True, True, False, False]
    assert data.repairs["hours without any measurement inside a table, all missing"] == 3


def test_a_measurement_at_48_00_belongs_to_the_last_hour(others):
    patient(others, 132541, [*hourly(range(44, 48)), "48:00,HR,60"])
    assert table(load(), 132541)["HR"].tolist() == [124, 125, 126, 60]


def test_patients_without_vital_signs_or_with_one_hour_are_counted(others):
    patient(others, 132541, ["00:30,Glucose,120"])
    patient(others, 132542, hourly([2]))
    data = load()
    assert data.repairs["patients without any vital sign, left out"] == 1
    assert data.repairs["users with fewer than 4 rows, left out"] == 1
    assert len(table(data, 132542)) == 0


def test_duplicated_rows_are_counted_and_change_nothing(others):
    patient(others, 132541, hourly(range(5)) * 2)
    data = load()
    assert data.repairs["duplicated rows"] == 5
    assert table(data, 132541)["HR"].tolist() == [80, 81, 82, 83, 84]


def test_time_running_backwards_is_sorted_and_counted(others):
    patient(others, 132541, hourly(range(5))[::-1])
    data = load()
    assert data.repairs["rows with time running backwards, sorted"] == 4
    assert table(data, 132541)["HR"].tolist() == [80, 81, 82, 83, 84]


def test_a_measurement_without_a_value_is_counted(others):
    patient(others, 132541, [*hourly(range(5)), "02:30,HR,NaN"])
    data = load()
    assert data.repairs["measurements without a value, left out"] == 1
    assert table(data, 132541)["HR"].tolist() == [80, 81, 82, 83, 84]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("49:00,HR,80", "column 'Time'.*expected a time from 00:00 to 48:00, got '49:00'"),
        ("-1:00,HR,80", "expected a time from 00:00 to 48:00"),
        ("01:00,HR,fast", "column 'Value'.*expected a finite number, got 'fast'"),
        ("01:00,HR", "set-a' cannot be read.*Expected 4 columns, got 3"),
    ],
)
def test_a_malformed_row_is_named(others, row, sentence):
    patient(others, 132541, [row])
    with pytest.raises(DataError, match=sentence):
        load()


def test_a_file_with_another_header_is_named(others):
    (others / "set-a" / "132541.txt").write_text("Time,Param,Value\n00:00,HR,80\n")
    with pytest.raises(
        DataError, match=r"'set-a/132541.txt' has no column 'Parameter'; the nearest is 'Param'"
    ):
        load()


def test_an_empty_patient_file_is_named(others):
    (others / "set-a" / "132541.txt").touch()
    with pytest.raises(DataError, match=r"'set-a/132541.txt' has no column 'Time'"):
        load()


def test_an_empty_folder_is_an_error(folder):
    (folder / "set-a").mkdir()
    with pytest.raises(DataError, match=r"has no \.txt files"):
        load()


def test_a_file_named_by_no_record_is_an_error(others):
    (others / "set-a" / "readme.txt").write_text(HEADER)
    with pytest.raises(DataError, match="is not named by a RecordID"):
        load()


def test_one_long_csv_file_gives_the_same_tables_as_the_folder(others):
    expected = load()
    rows = [
        f"{path.stem},{line}"
        for path in sorted((others / "set-a").glob("*.txt"))
        for line in path.read_text().splitlines()[1:]
    ]
    text = "\n".join([f"RecordID,{HEADER}", *rows])
    (others / "long.csv").write_text(text)
    with gzip.open(others / "long.csv.gz", "wt") as stream:
        stream.write(text)
    for name in ("long.csv", "long.csv.gz"):
        source = Physionet2012(file=name, test_share=0.5)
        assert source.load(rng=np.random.default_rng(0)).train.equals(expected.train)


def test_a_truncated_gzip_file_is_said_to_be_one(others):
    rows = "".join(f"{number},00:10,HR,{number % 90 + 20}\n" for number in range(30_000))
    whole = gzip.compress(f"RecordID,{HEADER}\n{rows}".encode())
    (others / "long.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"'long.csv.gz' is a truncated or damaged gzip"):
        Physionet2012(file="long.csv.gz").load(rng=np.random.default_rng(0))


def test_a_file_without_vital_signs_is_an_error(others):
    (others / "long.csv").write_text(f"RecordID,{HEADER}\n1,00:10,Glucose,5\n")
    with pytest.raises(DataError, match="column 'Parameter': none of HR"):
        Physionet2012(file="long.csv").load(rng=np.random.default_rng(0))


def test_another_file_under_the_name_of_the_sample_is_refused(folder):
    (folder / SAMPLE).parent.mkdir()
    (folder / SAMPLE).write_bytes(b"PAR1")
    with pytest.raises(DataError, match="has the sha256"):
        Physionet2012().load(rng=np.random.default_rng(0))


def test_more_than_48_hours_are_refused_at_birth():
    with pytest.raises(ValueError, match="at most 48"):
        Physionet2012(max_rows=49)


def test_the_real_set_a_becomes_hourly_tables(real_data):
    real_data(SAMPLE)
    data = Physionet2012().load(rng=np.random.default_rng(0))
    users = data.train["user"].nunique() + data.test["user"].nunique()
    assert users == 3996 - 50 - 5
    assert data.repairs["patients without any vital sign, left out"] == 50
    assert data.repairs["users with fewer than 4 rows, left out"] == 5
    assert data.schema.nominal_users == 4000
    assert data.train["HR"].mean() == pytest.approx(87, abs=1)
    for column in data.schema.numeric:
        assert data.train[column.name].dropna().between(column.lower, column.upper).all()
