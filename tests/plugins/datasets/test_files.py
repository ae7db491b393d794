from __future__ import annotations

import gzip
import hashlib

import numpy as np
import pandas as pd
import pytest

from panelbench import DataError, DataFile
from panelbench_datasets.files import (
    Repairs,
    identifiers,
    locate,
    match_columns,
    numbers,
    read_table,
    times,
)


def wanted(path, sha256=None):
    return DataFile(path=path, sha256=sha256, instructions="Take it from the publisher.")


def table(**columns):
    return pd.DataFrame(columns).astype(str)


def test_a_missing_file_is_answered_with_how_to_get_it(folder):
    with pytest.raises(DataError, match=r"'a/b.csv' is not in .* Take it from the publisher"):
        locate(wanted("a/b.csv"))
    assert folder.is_dir()


def test_an_empty_file_is_named(folder):
    (folder / "b.csv").touch()
    with pytest.raises(DataError, match=r"'b.csv' is empty"):
        locate(wanted("b.csv"))


def test_another_hash_is_named_with_both_values(folder):
    (folder / "b.csv").write_text("x\n1\n")
    given = hashlib.sha256(b"x\n1\n").hexdigest()
    assert locate(wanted("b.csv", given)) == folder / "b.csv"
    with pytest.raises(DataError, match=f"has the sha256 {given}, expected {'0' * 64}"):
        locate(wanted("b.csv", "0" * 64))


def test_names_are_matched_without_case_spaces_and_underscores():
    found = match_columns(["Created Date", "BBL"], ["created_date", "bbl"], ["gone"], file="f")
    assert found == {"Created Date": "created_date", "BBL": "bbl"}


def test_a_renamed_column_is_answered_with_the_nearest():
    with pytest.raises(
        DataError, match=r"'f' has no column 'heartrate'; the nearest is 'hartrate'"
    ):
        match_columns(["hartrate", "sbp"], ["heartrate"], file="f")


def test_a_missing_column_is_answered_with_all_there_are():
    with pytest.raises(DataError, match=r"no column 'pain'\. It has: a, b"):
        match_columns(["a", "b"], ["pain"], file="f")


def test_a_truncated_gzip_file_is_said_to_be_one(folder):
    whole = gzip.compress(b"a,b\n" + b"".join(b"%d,2\n" % n for n in range(20_000)))
    path = folder / "t.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"'t.csv.gz' is a truncated or damaged gzip"):
        read_table(path, ["a"], file="t.csv.gz")


def test_text_that_is_no_gzip_is_said_to_be_damaged(folder):
    path = folder / "t.csv.gz"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="gzip"):
        read_table(path, ["a"], file="t.csv.gz")


def test_a_damaged_parquet_file_is_named(folder):
    path = folder / "t.parquet"
    path.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(DataError, match=r"'t.parquet' cannot be read"):
        read_table(path, ["a"], file="t.parquet")


def test_a_header_without_rows_is_an_error(folder):
    path = folder / "t.csv"
    path.write_text("a,b\n")
    with pytest.raises(DataError, match="no rows"):
        read_table(path, ["a"], file="t.csv")


def test_a_row_with_too_many_values_is_named_by_its_line(folder):
    path = folder / "t.csv"
    path.write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(DataError, match="Expected 2 columns, got 3"):
        read_table(path, ["a"], file="t.csv")


def test_a_row_with_too_few_values_is_not_filled_up(folder):
    path = folder / "t.csv"
    path.write_text("a,b\n1,2\n1\n")
    with pytest.raises(DataError, match="Expected 2 columns, got 1"):
        read_table(path, ["a"], file="t.csv")


def test_line_breaks_and_commas_in_quotes_belong_to_the_value(folder):
    path = folder / "t.csv"
    path.write_text('a,b\n"1,\n2",3\n')
    assert read_table(path, ["b", "a"], file="t.csv")["a"].tolist() == ["1,\n2"]


def test_bytes_that_are_no_utf8_are_refused(folder):
    path = folder / "t.csv"
    path.write_bytes(b"a,b\n\xff\xfe,2\n")
    with pytest.raises(DataError, match="UTF8"):
        read_table(path, ["a"], file="t.csv")


def test_a_word_in_a_number_column_is_named_by_file_column_and_row():
    with pytest.raises(
        DataError, match=r"'f', column 'x', row 2: expected a finite number, got 'two'"
    ):
        numbers(table(x=["1", "two", "three"]), "x", file="f")


def test_an_infinite_number_is_refused():
    with pytest.raises(DataError, match="row 1: expected a finite number"):
        numbers(table(x=["inf"]), "x", file="f")


@pytest.mark.parametrize("missing", ["", "NA", "nan", " null "])
def test_usual_spellings_of_absence_are_missing(missing):
    assert np.isnan(numbers(table(x=["1", missing]), "x", file="f")).tolist() == [False, True]


def test_a_missing_value_is_refused_where_one_is_required():
    with pytest.raises(DataError, match="row 2: expected a number, not a missing value"):
        numbers(table(x=["1", ""]), "x", file="f", required=True)


def test_thousands_commas_are_understood_and_other_commas_are_not():
    given = table(x=["1,118,846,980,200", "12.5", "-1,234.5"])
    assert numbers(given, "x", file="f").tolist() == [1118846980200.0, 12.5, -1234.5]
    with pytest.raises(DataError, match="got '1,2'"):
        numbers(table(x=["1,2"]), "x", file="f")


def test_an_identifier_with_a_fraction_is_refused():
    assert identifiers(table(x=["7.0"]), "x", file="f").tolist() == [7]
    with pytest.raises(DataError, match=r"expected a whole number, got '7\.5'"):
        identifiers(table(x=["7.5"]), "x", file="f")


def test_a_time_in_another_format_is_named_by_its_row():
    formats = ("%Y-%m-%d %H:%M:%S",)
    with pytest.raises(DataError, match=r"row 2: expected a time like %Y-%m-%d .* got '3 March'"):
        times(table(t=["2026-03-01 10:00:00", "3 March"]), "t", formats=formats, file="f")


def test_repairs_are_listed_even_when_there_were_none():
    repairs = Repairs()
    repairs.add("duplicated rows", 0)
    repairs.add("duplicated rows", 2)
    assert repairs.counts == {"duplicated rows": 2}
