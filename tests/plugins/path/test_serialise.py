"""Tables as text and back: exact, unique, whatever stands in a name or a value."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panelbench import Column, ColumnKind, PrivacyUnit, Schema
from panelbench.testing import tiny_tables, tiny_visits
from panelbench_path.grids import LEVELS, number_grid
from panelbench_path.parse import read_line
from panelbench_path.serialise import END, Form, escaped, unescaped

ODD = (
    "a, b is 3",
    'say "no"',
    "",
    " padded ",
    "[End]",
    "naïve 漢字 🙂",
    "line\nbreak",
    "is",
    "\u2028",
)
EXAMPLE = """\
Columns: level, count, state
[Row 1]: level is -4.78, count is 2, state is calm
[Row 2]: level is 0.00, count is , state is full
[End]"""


def schema_of(*columns, **more):
    return Schema(
        columns=columns, unit=PrivacyUnit.USER, min_rows=1, max_rows=9, **{"regular": True, **more}
    )


def table(form, *rows):
    return np.array(
        [
            [q.codes[text] for q, text in zip(form.row(n), row, strict=True)]
            for n, row in enumerate(rows, 1)
        ]
    )


def read(form, text):
    """All rows of a text, by the parser."""
    lines = text.split("\n")
    assert (lines[0], lines[-1]) == (form.header, END)
    return [read_line(line, form, number) for number, line in enumerate(lines[1:-1], 1)]


def test_a_table_is_the_papers_text():
    form = Form.of(tiny_tables().schema)
    rows = table(form, ("-4.78", "2", "calm"), ("0.00", "", "full"))
    assert form.text(rows) == EXAMPLE


@pytest.mark.parametrize("panel", [tiny_tables(), tiny_visits()], ids=["regular", "irregular"])
def test_text_is_read_back_exactly(panel):
    form = Form.of(panel.schema)
    for codes in form.encode(panel.train):
        assert read(form, form.text(codes)) == codes.tolist()


@pytest.mark.parametrize("panel", [tiny_tables(), tiny_visits()], ids=["regular", "irregular"])
def test_writing_what_was_read_changes_nothing(panel):
    form = Form.of(panel.schema)
    codes = form.encode(panel.train)
    again = form.encode(form.decode(codes))
    assert all(np.array_equal(a, b) for a, b in zip(codes, again, strict=True))


def test_the_first_time_keeps_its_hour_and_later_ones_their_gap():
    panel = tiny_visits()
    form = Form.of(panel.schema)
    back = form.decode(form.encode(panel.train))
    assert np.allclose(back["time"].mod(1440), panel.train["time"].mod(1440), atol=0.5)


def test_names_and_categories_with_commas_quotes_and_unicode_are_read_back():
    column = Column(
        name='ward, "new" is', kind=ColumnKind.CATEGORICAL, categories=ODD, nullable=True
    )
    other = Column(name="rate", lower=0.0, upper=9.0, integer=True)
    form = Form.of(schema_of(other, column))
    codes = np.array([[n % 9, n] for n in range(len(ODD) + 1)])
    text = form.text(codes)
    assert len(text.split("\n")) == len(codes) + 2
    assert read(form, text) == codes.tolist()


def test_an_empty_category_is_not_a_missing_one():
    form = Form.of(
        schema_of(
            Column(name="a", kind=ColumnKind.CATEGORICAL, categories=("", "x"), nullable=True)
        )
    )
    assert form.line(1, np.array([0])) == '[Row 1]: a is ""'
    assert form.line(1, np.array([2])) == "[Row 1]: a is "


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_any_name_is_read_back(name):
    written = escaped(name)
    assert unescaped(written) == name
    assert "\n" not in written
    assert written == name or written.startswith('"')


@settings(max_examples=100, deadline=None)
@given(
    st.floats(-1e12, 1e12, allow_nan=False),
    st.floats(1e-12, 1e12),
    st.booleans(),
)
def test_numbers_lie_between_the_public_bounds_and_are_few(lower, width, whole):
    upper = lower + width
    if upper <= lower:
        return
    texts, numbers = number_grid(lower, upper, whole=whole)
    assert 1 <= len(texts) == len(set(texts)) <= LEVELS
    assert (np.diff(numbers) > 0).all()
    assert lower <= numbers[0] <= numbers[-1] <= upper or len(texts) == 1


@pytest.mark.parametrize("bounds", [(0.0, 1e12), (0.0, 1e-12), (-1e12, 1e12), (1e6, 1e6 + 1)])
def test_numbers_of_any_size_take_at_most_five_digits_of_resolution(bounds):
    texts, numbers = number_grid(*bounds, whole=False)
    assert 410 <= len(texts) <= LEVELS
    assert max(map(len, texts)) <= 12
    assert np.allclose(numbers, [float(text) for text in texts], rtol=1e-12)


def test_the_grid_follows_from_the_schema_alone():
    panel = tiny_tables()
    one = dataclasses.replace(panel, train=panel.train[panel.train["user"] == 0])
    assert Form.of(one.schema).first[0].texts == Form.of(panel.schema).first[0].texts


def test_a_column_that_is_always_missing_is_written_and_read():
    column = Column(name="pain", lower=0.0, upper=10.0, nullable=True)
    form = Form.of(schema_of(column))
    frame = pd.DataFrame({"user": [0, 0], "time": [0.0, 1.0], "pain": [np.nan, np.nan]})
    (codes,) = form.encode(frame)
    assert form.text(codes) == "Columns: pain\n[Row 1]: pain is \n[Row 2]: pain is \n[End]"
    assert form.decode([codes])["pain"].isna().all()


def test_a_column_without_bounds_is_refused():
    with pytest.raises(ValueError, match="needs public bounds"):
        Form.of(schema_of(Column(name="a")))


class TestFallbacks:
    form = Form.of(tiny_tables().schema)

    def read(self, line, **more):
        codes = read_line(line, self.form, 1, **more)
        if codes is None:
            return None
        return [q.texts[code] for q, code in zip(self.form.first, codes, strict=True)]

    def test_names_in_another_order_are_read_by_name(self):
        assert self.read("[Row 7]: state is busy, level is 1, count is 3") == ["1.00", "3", "busy"]

    def test_half_of_the_names_will_do_where_the_others_may_be_missing(self):
        assert self.read("level is 1.239, state is calm") == ["1.24", "", "calm"]

    def test_values_without_names_are_read_in_order(self):
        assert self.read("[Row 1]: 1.5, 4, full") == ["1.50", "4", "full"]

    def test_a_static_column_is_copied_from_the_row_before(self):
        line = "level is 2, count is 3"
        assert self.read(line) is None
        assert self.read(line, earlier=[[0, 0, 2]], static=("state",)) == ["2.00", "3", "full"]

    @pytest.mark.parametrize(
        "line",
        [
            "",
            "level is warm, count is x, state is calm",
            "level is nan, count is 1, state is cold",
            "level is 99, state is calm, count is 1e9",
            "level is 1e999, state is calmer",
            "[End]",
        ],
    )
    def test_a_line_that_makes_no_sense_is_no_row(self, line):
        assert self.read(line) is None
