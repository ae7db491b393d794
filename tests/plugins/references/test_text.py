"""Tables as text: what is written is read again, and what can be made of a model's text."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panelbench import Column, ColumnKind, PrivacyUnit, Schema
from panelbench.testing import tiny_tables, tiny_visits
from panelbench_references.prompts import prompt
from panelbench_references.text import header, read, write

SCHEMA = Schema(
    columns=(
        Column(name="heart rate", unit="bpm", lower=0.0, upper=300.0, nullable=True),
        Column(name="count", integer=True, nullable=True),
        Column(name="ward", kind=ColumnKind.CATEGORICAL, categories=("Surgery, day", "ICU")),
    ),
    unit=PrivacyUnit.USER,
    min_rows=1,
    max_rows=4,
)
IRREGULAR = dataclasses.replace(SCHEMA, regular=False, time_unit="minute")


def row(heart, count, ward):
    return {"heart rate": heart, "count": count, "ward": ward}


FULL = row(83.0, 2.0, "ICU")


@pytest.mark.parametrize("dataset", [tiny_tables(), tiny_visits()], ids=["regular", "irregular"])
def test_what_is_written_is_read_again(dataset):
    for _, table in list(dataset.train.groupby("user"))[:20]:
        parsed = read(write(table, dataset.schema), dataset.schema)
        assert parsed.written == len(parsed.rows) == len(table)
        back = pd.DataFrame(parsed.rows)
        for column in dataset.schema.columns:
            if column.categories:
                assert back[column.name].tolist() == table[column.name].tolist()
            else:
                again = back[column.name].to_numpy(dtype=float)
                assert again == pytest.approx(table[column.name].to_numpy(), nan_ok=True, rel=1e-9)
        if not dataset.schema.regular:
            assert back["time"].tolist() == table["time"].tolist()


def test_a_table_is_written_as_in_the_paper():
    table = pd.DataFrame(
        {"heart rate": [83.0, np.nan], "count": [1.0, 2.0], "ward": ["ICU", "Surgery, day"]}
    )
    assert write(table, SCHEMA) == (
        "Columns: heart rate, count, ward\n"
        "[Row 1]: heart rate is 83, count is 1, ward is ICU\n"
        "[Row 2]: heart rate is , count is 2, ward is Surgery, day\n"
        "[End]"
    )
    assert header(IRREGULAR) == "Columns: time, heart rate, count, ward"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("[Row 1]: heart rate is 83, count is 2, ward is ICU", [FULL]),
        (
            "Sure! Here is one:\n```\n[Row 1]: heart rate is 83, count is 2, ward is ICU\n```",
            [FULL],
        ),
        ("row 1: Heart, ward is ICU, count is 2, heart rate is 83 bpm", [FULL]),
        ("[Row 1]: heart rate is '83', count is \"2\", ward is icu.", [FULL]),
        ("[Row 1]: 83, 2, ICU", [FULL]),
        ("[Row 1]: heart rate: 83, count: 2, ward: ICU", [FULL]),
        ("Here is a table.\n83, 2, ICU\n84.5, 3, ICU", [FULL, row(84.5, 3.0, "ICU")]),
        ("[Row 1]: heart rate is , count is 2, ward is ICU", [row(None, 2.0, "ICU")]),
        ("[Row 1]: count is 2, ward is ICU", [row(None, 2.0, "ICU")]),
        ("[Row 1]: heart rate is high, count is 2, ward is ICU", [row(None, 2.0, "ICU")]),
        (
            "[Row 1]: heart rate is 1e2, count is 2, ward is Surgery, day",
            [row(100.0, 2.0, "Surgery, day")],
        ),
    ],
)
def test_rows_are_read_with_fallbacks(text, rows):
    assert read(text, SCHEMA).rows == rows


@pytest.mark.parametrize(
    "bad",
    [
        "[Row 2]: heart rate is 83, count is 2",  # the ward may not be missing
        "[Row 2]: ward is ICU",  # fewer than half of the columns
        "[Row 2]: heart rate is 83, count is 2, ward is kitchen",
        "[Row 2]: heart rate is nan, count is inf, ward is ICU",
        "[Row 2]: I cannot do this.",
    ],
)
def test_a_row_that_cannot_be_used_ends_the_table(bad):
    good = "heart rate is 83, count is 2, ward is ICU"
    parsed = read(f"[Row 1]: {good}\n{bad}\n[Row 3]: {good}", SCHEMA)
    assert parsed.rows == [FULL]
    assert parsed.written == 2


def test_the_end_a_second_table_and_the_longest_length_stop():
    good = "heart rate is 83, count is 2, ward is ICU"
    assert len(read(f"[Row 1]: {good}\n[End]\n[Row 2]: {good}", SCHEMA).rows) == 1
    assert len(read(f"[Row 1]: {good}\n\nExample:\n[Row 1]: {good}", SCHEMA).rows) == 1
    many = "\n".join(f"[Row {n}]: {good}" for n in range(1, 10))
    assert len(read(many, SCHEMA).rows) == SCHEMA.max_rows


def test_times_must_rise():
    good = "heart rate is 83, count is 2, ward is ICU"
    text = f"[Row 1]: time is 5, {good}\n[Row 2]: time is 7, {good}\n[Row 3]: time is 7, {good}"
    assert [r["time"] for r in read(text, IRREGULAR).rows] == [5.0, 7.0]
    assert not read(f"[Row 1]: {good}", IRREGULAR).rows


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text):
    for schema in (SCHEMA, IRREGULAR):
        parsed = read(f"[Row 1]: {text}", schema)
        assert len(parsed.rows) <= parsed.written


def test_the_prompt_has_the_public_schema_and_the_examples():
    plain, shown = prompt(IRREGULAR, []), prompt(SCHEMA, ["TABLE ONE", "TABLE TWO"])
    for said in ("in bpm, at least 0, at most 300", "Surgery, day; ICU", "1 to 4 rows", "rising"):
        assert said in plain
    assert "Example 2:\nTABLE TWO" in shown
    assert "new and different" in shown
    assert "different" not in plain
