"""Pictures of columns: what they show, and that odd releases do not break them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from panelbench_metrics.shapes import courses_of, values_of
from panelbench_metrics.tdcr import Tdcr


def test_shares_of_values_add_up_to_one_with_what_lies_beyond_in_the_outer_bins(dataset):
    columns = dataset.schema.numeric
    far = dataset.test.assign(heart=1e9)
    panel = values_of(columns, dataset.test, far)["values of heart"]
    assert sum(panel.lines["truth"]) == pytest.approx(1.0, abs=1e-4)
    assert panel.lines["value"] == (*[0.0] * 39, 1.0)


def test_the_course_is_the_mean_by_row(dataset):
    columns = dataset.schema.numeric
    panel = courses_of(columns, dataset.test, dataset.train)["heart by row"]
    row = dataset.train.groupby("user").cumcount()
    first = dataset.train["heart"][row == 0].dropna()
    assert panel.lines["value"][0] == pytest.approx(first.mean(), rel=1e-5)
    assert panel.lines["lower"][0] == pytest.approx(first.quantile(0.1), rel=1e-5)
    assert panel.x[:3] == (1.0, 2.0, 3.0)


def test_a_course_ends_where_few_tables_go_on(dataset):
    columns = dataset.schema.numeric
    short = dataset.train[dataset.train.groupby("user").cumcount() < 3]
    assert len(courses_of(columns, dataset.test, short)["heart by row"].x) == 3


def test_a_column_without_values_has_no_picture(dataset):
    columns = dataset.schema.numeric
    empty = dataset.train.assign(heart=np.nan)
    for pictures in (values_of, courses_of):
        assert not any("heart" in title for title in pictures(columns, dataset.test, empty))


def test_one_row_a_table_has_no_course(dataset):
    columns = dataset.schema.numeric
    one = pd.DataFrame(dataset.train.groupby("user", as_index=False).first())
    assert courses_of(columns, dataset.test, one) == {}


def test_tables_cut_to_a_length_repeat_no_pictures(dataset, as_release, scores_of):
    release = as_release(dataset.train[dataset.train["user"] < 60])
    assert scores_of(Tdcr(), dataset, release)["raw"].panels
    assert not scores_of(Tdcr(rows=4), dataset, release)["raw"].panels
