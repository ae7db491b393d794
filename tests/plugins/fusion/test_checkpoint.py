"""Training that is killed goes on; training that is done is not done again; devices."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from panelbench import Budget, Split
from panelbench.testing import tiny_streams
from panelbench_fusion import filter_training, online, training
from panelbench_fusion.adaptive import Adaptive, UniformLearnt
from panelbench_fusion.adaptive_ppo import AdaptivePpo
from panelbench_fusion.checkpoint import NOWHERE, Dice, Shelf, shelf_for
from panelbench_fusion.estimator import Regularisation
from panelbench_fusion.feature import Feature

BUDGET = Budget.renyi_dp(2.0, 1.5)
FEATURE = Feature.of(tiny_streams().schema, count_weight=0.6, values=("speed",))
SIZES = {"draws": 2, "updates": 120, "feature_updates": 300, "batch": 4, "rank": 4, "memory": 4}
MECHANISMS = pytest.mark.parametrize(
    "mechanism",
    [
        Adaptive(**SIZES, width=4),
        AdaptivePpo(**SIZES, width=4, iterations=120, trajectories=8),
        UniformLearnt(**SIZES),
    ],
    ids=lambda one: one.name,
)


class KilledError(Exception):
    """Stands for the end of the process."""


def release(mechanism, dataset=None, seed=0):
    data = tiny_streams() if dataset is None else dataset
    return mechanism.release(data.for_mechanism(), BUDGET, rng=np.random.default_rng(seed))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PANELBENCH_CACHE", str(tmp_path))
    return tmp_path / "fusion"


@MECHANISMS
def test_training_that_was_killed_anywhere_ends_bit_for_bit_as_if_it_had_not_been(
    mechanism, folder, monkeypatch
):
    """Failed without the generator, and without the optimizer, among what is kept."""
    monkeypatch.delenv("PANELBENCH_CACHE")
    whole = release(mechanism)
    monkeypatch.setenv("PANELBENCH_CACHE", str(folder.parent))
    save, kills = Shelf.save, 0

    def dying(self, name, what):
        save(self, name, what)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(filter_training, "KEEP_EVERY", 4)
        patch.setattr(Shelf, "save", dying)
        while True:
            try:
                found = release(mechanism)
                break
            except KilledError:
                kills += 1
    assert kills > 4
    np.testing.assert_array_equal(found.estimate, whole.estimate)
    np.testing.assert_array_equal(found.spent, whole.spent)
    assert found.info == whole.info


def test_training_that_is_done_is_not_done_again_whatever_comes_after_it(folder, monkeypatch):
    mechanism = Adaptive(**SIZES, width=4)
    first = release(mechanism)

    def never(*_args, **_kwargs):
        raise AssertionError

    for module in (online, filter_training):
        for name in ("optimal_costs", "held_out_error"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, never)
    monkeypatch.setattr(training.Judge, "look", never)
    again = release(mechanism)
    np.testing.assert_array_equal(again.estimate, first.estimate)
    more = release(dataclasses.replace(mechanism, draws=3))
    assert more.info == first.info
    assert len(more.estimate) == 3


@pytest.mark.parametrize("harm", ["cut", "changed", "emptied"])
def test_a_damaged_checkpoint_is_ignored(folder, harm):
    """Failed without the hash: a changed byte gave other weights."""
    mechanism = UniformLearnt(**SIZES)
    first = release(mechanism)
    files = sorted(folder.iterdir())
    assert files
    for path in files:
        content = bytearray(path.read_bytes())
        if harm == "changed":
            content[len(content) // 2] ^= 1
        path.write_bytes({"cut": content[:-9], "changed": content, "emptied": b""}[harm])
    np.testing.assert_array_equal(release(mechanism).estimate, first.estimate)
    assert not [path for path in folder.iterdir() if path.suffix == ".part"]


def test_p16_a_checkpoint_knows_nothing_of_test_windows_and_all_that_training_depends_on(folder):
    """Hashing all episodes failed it."""
    mechanism, data = Adaptive(**SIZES), tiny_streams()

    def key(one=mechanism, dataset=data, budget=BUDGET, seed=0):
        shelf = one._shelf(dataset.for_mechanism(), budget, np.random.default_rng(seed))
        assert shelf.folder == folder
        return shelf.key

    observations, state = data.observations.copy(), data.state.copy()
    observations[data.split == Split.TEST] *= 0.5
    assert key(dataset=dataclasses.replace(data, observations=observations)) == key()
    assert key(dataclasses.replace(mechanism, draws=9, trip_windows=7)) == key()
    state[0, 0] += 1
    others = {
        key(),
        key(dataset=dataclasses.replace(data, state=state)),
        key(dataclasses.replace(mechanism, updates=7)),
        key(budget=Budget.renyi_dp(2.0, 1.6)),
        key(seed=1),
        key(AdaptivePpo(**SIZES)),
    }
    assert len(others) == 6


def test_without_a_folder_nothing_is_kept(monkeypatch):
    monkeypatch.delenv("PANELBENCH_CACHE", raising=False)
    assert shelf_for((np.zeros(2),), "fact") == NOWHERE
    NOWHERE.save("name", {"a": 1})
    assert NOWHERE.load("name") is None


def test_a_folder_that_cannot_be_written_does_not_end_training(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    Shelf(folder=blocked / "fusion", key="k").save("training", {"a": 1})
    assert "cannot keep" in capsys.readouterr().err


def test_dice_roll_on_from_where_they_were():
    generator = torch.Generator().manual_seed(1)
    state = Dice(generator).state_dict()
    first = torch.randn(3, generator=generator)
    Dice(generator).load_state_dict(state)
    torch.testing.assert_close(torch.randn(3, generator=generator), first)


SCRIPT = """
import numpy as np
from panelbench import Budget
from panelbench.testing import tiny_streams
from panelbench_fusion.adaptive import UniformLearnt
one = UniformLearnt(draws=1, updates=900, feature_updates=20, batch=4, rank=4, memory=4)
data, rng = tiny_streams().for_mechanism(), np.random.default_rng(0)
one.release(data, Budget.renyi_dp(2.0, 1.5), rng=rng)
"""


def test_training_survives_being_killed_by_the_system(folder):
    command = [sys.executable, "-c", SCRIPT]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(folder.glob("*-training.pt")):
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    _, before = first.communicate()
    again = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert first.returncode == -signal.SIGKILL, before
    assert "goes on from update" in again.stderr


def test_the_whole_system_moves_to_a_device_and_back():
    """On the processor this moves nothing, but goes the way of a graphics card."""
    data = tiny_streams().for_mechanism()
    train, _ = online.known_splits(data, FEATURE)
    assert training.best_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    device = training.best_device()
    pool = training.Pool.of(train).on(device)
    assert pool.state.device.type == pool.sums.device.type == device.type


def test_tensors_that_training_makes_are_made_where_the_weights_are():
    """The meta device computes nothing, but refuses operands that are somewhere else.

    Failed when the estimator's memory began on the processor.
    """
    data = tiny_streams().for_mechanism()
    ready = online.prepare(
        data,
        FEATURE,
        Regularisation(shrinkage=0.9, ridge=0.1),
        BUDGET,
        online.Shape(rank=4, memory=4, width=4, start="uniform"),
        rng=np.random.default_rng(0),
    )
    meta = torch.device("meta")
    system, pool = ready.system.on(meta), ready.train.on(meta)
    noise = training.normal(pool.sums, torch.Generator())
    trace = system.rollout(training.TrainingChannel(pool.sums, noise), (len(pool.sums),))
    assert {one.device.type for one in (*trace.estimates, *trace.gains, *trace.states)} == {"meta"}


def test_a_half_of_the_windows_without_usable_moments_does_not_end_training(monkeypatch):
    """Ended a cell of the published grid at B_G 5; failed while nothing caught it."""
    error, calls = filter_training.held_out_error, []

    def sometimes(*arguments):
        calls.append(arguments)
        if len(calls) % 3 == 0:
            raise torch.linalg.LinAlgError
        return error(*arguments)

    monkeypatch.delenv("PANELBENCH_CACHE", raising=False)
    monkeypatch.setattr(filter_training, "held_out_error", sometimes)
    assert np.isfinite(release(UniformLearnt(**SIZES)).estimate).all()
    assert len(calls) > 3
