"""What all datasets of the plugin promise."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

import numpy as np
import pytest

from panelbench import SENSOR_STREAMS, DatasetSource, PrivacyUnit, Schema
from panelbench_datasets.hmm import Hmm, HmmTypes
from panelbench_datasets.mimic_iv_ed import MimicIvEd
from panelbench_datasets.mimic_like import MimicLike
from panelbench_datasets.nyc311 import Nyc311
from panelbench_datasets.nyc311_like import Nyc311Like
from panelbench_datasets.physionet2012 import Physionet2012
from panelbench_datasets.plugin import register_datasets
from panelbench_datasets.traffic_sim import TrafficSim
from panelbench_datasets.us101 import Us101

SMALL = {
    "hmm": Hmm(users=60, test_users=20),
    "hmm-types": HmmTypes(users=60, test_users=20),
    "mimic-like": MimicLike(users=60, test_users=20),
    "nyc311-like": Nyc311Like(users=60, test_users=20),
    "streams": TrafficSim(periods=1, minutes=1, gap_seconds=70, reporters=0.5),
    "tables": TrafficSim(periods=1, minutes=1, view="tables"),
}
REAL = [Us101(), Physionet2012(), MimicIvEd(), Nyc311()]


@cache
def loaded(which):
    """A small dataset, loaded once for all tests."""
    return SMALL[which].load(rng=np.random.default_rng(5))


def same(first, second):
    """Whether two datasets are identical to the last bit."""
    (arrays, meta), (others, other_meta) = first.to_arrays(), second.to_arrays()
    return meta == other_meta and all(
        np.array_equal(arrays[name], others[name], equal_nan=arrays[name].dtype.kind == "f")
        for name in arrays
    )


def test_ten_datasets_are_registered_under_distinct_names():
    names = [source.name for source in register_datasets()]
    assert sorted(names) == [
        "hmm",
        "hmm-types",
        "mimic-iv-ed",
        "mimic-like",
        "nyc311",
        "nyc311-like",
        "physionet2012",
        "queue-sim",
        "traffic-sim",
        "us101",
    ]


@pytest.mark.parametrize("source", register_datasets(), ids=lambda source: source.name)
def test_every_source_documents_every_field(source):
    assert issubclass(source, DatasetSource)
    for field in fields(source):
        assert f"{field.name}:" in source.__doc__


@pytest.mark.parametrize("which", SMALL)
def test_the_same_stream_gives_the_same_dataset_and_another_gives_another(which):
    source = SMALL[which]
    assert same(loaded(which), source.load(rng=np.random.default_rng(5)))
    assert not same(loaded(which), source.load(rng=np.random.default_rng(6)))


@pytest.mark.parametrize("which", SMALL)
def test_a_dataset_survives_storage_and_says_its_kind(which):
    source = SMALL[which]
    data = loaded(which)
    assert source.kind == data.kind
    assert same(type(data).from_arrays(*data.to_arrays()), data)
    assert Schema.from_json(data.schema.to_json()) == data.schema


@pytest.mark.parametrize("which", SMALL)
def test_a_simulator_reads_no_file_and_its_values_stay_inside_the_public_bounds(which):
    source = SMALL[which]
    assert source.files() == ()
    data = loaded(which)
    for index, column in enumerate(data.schema.columns):
        if column not in data.schema.numeric:
            continue
        if data.kind == SENSOR_STREAMS:
            values = data.observations[..., index][data.present]
            assert data.schema.unit is PrivacyUnit.SENSOR_TRAJECTORY
        else:
            values = data.train[column.name].dropna().to_numpy()
            assert data.schema.unit is PrivacyUnit.USER
        assert column.lower <= values.min()
        assert values.max() <= column.upper


@pytest.mark.parametrize("source", REAL, ids=lambda source: source.name)
def test_a_loader_says_how_to_get_its_file_and_what_it_must_hash_to(source):
    (file,) = source.files()
    assert file.instructions.startswith(("Take", "Export"))
    assert len(file.sha256) == 64
    (other,) = type(source)(file="mine.csv").files()
    assert (other.path, other.sha256) == ("mine.csv", None)


@pytest.mark.parametrize("source", REAL, ids=lambda source: source.name)
def test_a_real_sample_loads_the_same_twice(source, real_data):
    real_data(source.file)
    first, again = (source.load(rng=np.random.default_rng(5)) for _ in range(2))
    assert same(first, again)


@pytest.mark.parametrize("source", REAL, ids=lambda source: source.name)
def test_a_public_schema_does_not_depend_on_the_file(source, real_data):
    real_data(source.file)
    data = source.load(rng=np.random.default_rng(5))
    if hasattr(source, "schema"):
        assert data.schema == source.schema()
    assert all(isinstance(count, int) for count in data.repairs.values())
