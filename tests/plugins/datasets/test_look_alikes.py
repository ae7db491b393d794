from __future__ import annotations

import numpy as np
import pytest

from panelbench_datasets.mimic_iv_ed import MimicIvEd
from panelbench_datasets.mimic_like import MimicLike
from panelbench_datasets.nyc311 import Nyc311
from panelbench_datasets.nyc311_like import Nyc311Like


@pytest.fixture(scope="module")
def patients():
    return MimicLike(users=3000, test_users=300).load(rng=np.random.default_rng(1))


@pytest.fixture(scope="module")
def lots():
    return Nyc311Like(users=3000, test_users=300).load(rng=np.random.default_rng(1))


def test_the_look_alikes_have_the_schema_of_the_real_data(patients, lots):
    assert patients.schema.columns == MimicIvEd().schema().columns
    assert lots.schema.columns == Nyc311().schema().columns
    for like, real in ((patients, MimicIvEd()), (lots, Nyc311())):
        assert like.schema.time_unit == real.schema().time_unit == "minute"
        assert not like.schema.regular
        assert (like.schema.min_rows, like.schema.max_rows) == (4, 50)


@pytest.mark.parametrize("which", ["patients", "lots"])
def test_lengths_vary_over_the_whole_range(which, request):
    lengths = request.getfixturevalue(which).train["user"].value_counts()
    assert lengths.min() == 4
    assert lengths.max() == 50
    assert lengths.std() > 5


@pytest.mark.parametrize("which", ["patients", "lots"])
def test_gaps_are_irregular_and_heavy_tailed(which, request):
    data = request.getfixturevalue(which)
    gaps = data.train.groupby("user")["time"].diff().dropna()
    assert gaps.min() > 0
    assert gaps.mean() > 3 * gaps.median()


@pytest.mark.parametrize("which", ["patients", "lots"])
def test_the_first_time_is_a_minute_of_the_day(which, request):
    first = request.getfixturevalue(which).train.groupby("user")["time"].first()
    assert first.between(0, 1440, inclusive="left").all()


@pytest.mark.parametrize(
    ("column", "share"),
    [("temperature", 0.44), ("pain", 0.29), ("rhythm", 0.97), ("heartrate", 0.04)],
)
def test_values_are_missing_at_the_published_shares(patients, column, share):
    # 40,000 rows: a standard error of at most 0.0025; 5 of them is a false alarm of 6e-7.
    assert patients.train[column].isna().mean() == pytest.approx(share, abs=0.0125)


def test_means_are_near_those_of_the_published_summary(patients):
    train = patients.train
    assert train["heartrate"].mean() == pytest.approx(86.3, abs=3)
    assert train["sbp"].mean() == pytest.approx(126.9, abs=4)
    assert train["o2sat"].mean() == pytest.approx(97.9, abs=1)


def test_vital_signs_stay_inside_the_public_bounds_and_whole(patients):
    for column in patients.schema.numeric:
        values = patients.train[column.name].dropna()
        assert values.between(column.lower, column.upper).all()
        if column.integer:
            assert (values == values.round()).all()


def test_a_patients_rows_are_alike(patients):
    train = patients.train
    among = train.groupby("user")["sbp"].mean().var()
    assert among > 0.3 * train["sbp"].var()


def test_complaints_repeat(lots):
    train = lots.train
    before = train.groupby("user", observed=True)["complaint_type"].shift(1)
    again = (train["complaint_type"].astype(object) == before.astype(object))[before.notna()]
    by_chance = train["complaint_type"].value_counts(normalize=True).pow(2).sum()
    assert again.mean() > by_chance + 0.3


def test_noise_comes_at_night_and_repairs_by_day(lots):
    hour = lots.train["time"] // 60 % 24
    kind = lots.train["complaint_type"]
    night = (hour >= 21) | (hour < 3)
    assert night[kind == "NOISE - RESIDENTIAL"].mean() > 0.5
    assert night[kind == "PAINT/PLASTER"].mean() < 0.4


def test_a_lot_keeps_its_borough(lots):
    assert lots.train.groupby("user")["borough"].nunique().max() == 1


@pytest.mark.parametrize("source", [MimicLike, Nyc311Like])
@pytest.mark.parametrize("fields", [{"users": 0}, {"min_rows": 0}, {"max_rows": 3}])
def test_impossible_sizes_are_refused_at_birth(source, fields):
    with pytest.raises(ValueError, match="got"):
        source(**fields)
