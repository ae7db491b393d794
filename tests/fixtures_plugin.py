"""A stranger's plugin that misbehaves in every way the harness must survive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from panelbench import (
    SENSOR_STREAMS,
    USER_TABLES,
    Budget,
    DataError,
    DataFile,
    DatasetSource,
    Direction,
    Established,
    Estimates,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    Mechanism,
    Metric,
    NeighboringRelation,
    PrivacyUnit,
    Role,
    Scale,
    Score,
    Split,
    SyntheticTables,
    data_directory,
    hookimpl,
)
from panelbench.accounting import gaussian_stddev
from panelbench.schema import USER
from panelbench.testing import tiny_streams, tiny_tables


@dataclass(frozen=True, kw_only=True)
class Tiny(DatasetSource):
    """Tiny user tables."""

    name = "tiny"
    kind = USER_TABLES

    users: int = 120

    def load(self, *, rng):
        del rng
        return tiny_tables(users=self.users)


@dataclass(frozen=True, kw_only=True)
class TinyStreams(DatasetSource):
    """Tiny sensor streams."""

    name = "tiny-streams"
    kind = SENSOR_STREAMS

    def load(self, *, rng):
        del rng
        return tiny_streams()


@dataclass(frozen=True, kw_only=True)
class FromFile(DatasetSource):
    """Tiny user tables whose seed is read from a file, for tests of hashes."""

    name = "from-file"
    kind = USER_TABLES

    sha256: str | None = None

    def files(self):
        what = "Write a number into it."
        return (DataFile(path="seed.txt", instructions=what, sha256=self.sha256),)

    def load(self, *, rng):
        del rng
        text = (data_directory() / "seed.txt").read_text()
        if not text.strip().isdigit():
            raise DataError(f"seed.txt, row 1: expected a number, got {text!r}.")
        return tiny_tables(seed=int(text))


def _settled(budget: Budget, *, spend: float = 1.0) -> Guarantee:
    stddev = gaussian_stddev(budget, l2_sensitivity=1.0) / spend
    return Guarantee(
        established=Established.SETTLED,
        unit=PrivacyUnit.USER,
        relation=budget.relation,
        ledger=(GaussianEvent(stddev=stddev, l2_sensitivity=1.0),),
    )


@dataclass(frozen=True, kw_only=True)
class Ok(Mechanism):
    """Noise around the middle of the bounds."""

    name = "fx-ok"
    kind = USER_TABLES

    shift: float = 0.0

    def release(self, dataset, budget, *, rng):
        frame = dataset.train.copy()
        spread = min(gaussian_stddev(budget, l2_sensitivity=1.0), 5.0)
        noise = rng.normal(0, spread, len(frame))
        frame["level"] = np.clip(frame["level"] + self.shift + noise, -10, 10)
        return SyntheticTables(schema=dataset.schema, frame=frame, guarantee=_settled(budget))


@dataclass(frozen=True, kw_only=True)
class OkTwin(Ok):
    """The same under another name."""

    name = "fx-ok-twin"


@dataclass(frozen=True, kw_only=True)
class Raise(Ok):
    """Raises."""

    name = "fx-raise"

    def release(self, dataset, budget, *, rng):
        raise RuntimeError("the mechanism lost its marbles")


@dataclass(frozen=True, kw_only=True)
class RaiseOnce(Ok):
    """Raises until a file exists."""

    name = "fx-raise-once"

    marker: str = ""

    def release(self, dataset, budget, *, rng):
        if not Path(self.marker).exists():
            raise RuntimeError("not yet")
        return super().release(dataset, budget, rng=rng)


@dataclass(frozen=True, kw_only=True)
class RaiseOnRepeat(Ok):
    """Raises in half of its repeats."""

    name = "fx-raise-sometimes"

    def release(self, dataset, budget, *, rng):
        if rng.integers(2**31) % 2:
            raise RuntimeError("unlucky")
        return super().release(dataset, budget, rng=rng)


@dataclass(frozen=True, kw_only=True)
class Sleep(Ok):
    """Sleeps, and says in a file that it does."""

    name = "fx-sleep"

    seconds: float = 60.0
    note: str = ""

    def release(self, dataset, budget, *, rng):
        if self.note:
            Path(self.note).touch()
        time.sleep(self.seconds)
        return super().release(dataset, budget, rng=rng)


@dataclass(frozen=True, kw_only=True)
class Busy(Ok):
    """Computes for so many seconds of processor time."""

    name = "fx-busy"

    seconds: float = 0.1

    def release(self, dataset, budget, *, rng):
        until = time.process_time() + self.seconds
        while time.process_time() < until:
            rng.normal(size=1000)
        return super().release(dataset, budget, rng=rng)


@dataclass(frozen=True, kw_only=True)
class Chatty(Ok):
    """Prints without end."""

    name = "fx-chatty"

    def release(self, dataset, budget, *, rng):
        while True:
            sys.stdout.write("still here\n" * 1000)


@dataclass(frozen=True, kw_only=True)
class Hog(Ok):
    """Takes two gigabytes and keeps them; `apart`, a process it starts takes one."""

    name = "fx-hog"

    apart: bool = False

    def release(self, dataset, budget, *, rng):
        if self.apart:
            code = "import time; hoard = b'x' * 2**30; time.sleep(10)"
            subprocess.run([sys.executable, "-c", code], check=True)
            return super().release(dataset, budget, rng=rng)
        hoard = [np.ones(2**24) for _ in range(16)]
        time.sleep(30)
        return hoard


@dataclass(frozen=True, kw_only=True)
class Kill(Ok):
    """Kills itself."""

    name = "fx-kill"

    def release(self, dataset, budget, *, rng):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Fork(Ok):
    """Leaves a grandchild behind: its own, one in a session of its own, or an orphan."""

    name = "fx-fork"

    note: str = ""
    leaves: str = "child"

    def release(self, dataset, budget, *, rng):
        if self.leaves == "orphan":
            code = f"sleep 300 > /dev/null 2>&1 & echo $! > {self.note}"
            subprocess.run(["/bin/sh", "-c", code], check=True)
        else:
            apart = self.leaves == "session"
            child = subprocess.Popen(["/bin/sleep", "300"], start_new_session=apart)
            Path(self.note).write_text(str(child.pid))
            time.sleep(1 if apart else 0)  # long enough to be seen
        return super().release(dataset, budget, rng=rng)


@dataclass(frozen=True, kw_only=True)
class Overspend(Ok):
    """Spends twice what it may."""

    name = "fx-overspend"

    def release(self, dataset, budget, *, rng):
        guarantee = _settled(budget, spend=2.0)
        return SyntheticTables(schema=dataset.schema, frame=dataset.train, guarantee=guarantee)


@dataclass(frozen=True, kw_only=True)
class OtherRelation(Ok):
    """States its guarantee under another relation than the budget's."""

    name = "fx-other-relation"

    def release(self, dataset, budget, *, rng):
        guarantee = Guarantee(
            established=Established.SETTLED,
            unit=PrivacyUnit.USER,
            relation=next(r for r in NeighboringRelation if r is not budget.relation),
            ledger=(GaussianEvent(stddev=1e6, l2_sensitivity=1.0),),
        )
        return SyntheticTables(schema=dataset.schema, frame=dataset.train, guarantee=guarantee)


@dataclass(frozen=True, kw_only=True)
class Leak(Ok):
    """Returns private rows, and claims to be private."""

    name = "fx-leak"

    def release(self, dataset, budget, *, rng):
        guarantee = _settled(budget)
        return SyntheticTables(schema=dataset.schema, frame=dataset.train, guarantee=guarantee)


@dataclass(frozen=True, kw_only=True)
class Laplace(Ok):
    """As many tables as users at the upper bound, plus Laplace noise; `noise` 1 is as claimed."""

    name = "fx-laplace"

    noise: float = 1.0

    def release(self, dataset, budget, *, rng):
        column, train = dataset.schema.numeric[0], dataset.train
        scale = 1.0 / budget.epsilon
        high = train[column.name].to_numpy() >= column.upper
        count = len(np.unique(train[USER].to_numpy()[high])) + rng.laplace(0, self.noise * scale)
        tables = max(1, 20 + round(count))
        rows = dataset.schema.min_rows
        columns = {c.name: (c.categories or [c.lower])[0] for c in dataset.schema.columns}
        times = {USER: np.repeat(range(tables), rows), "time": np.tile(range(rows), tables)}
        frame = pd.DataFrame({**times, **columns})
        guarantee = Guarantee(
            established=Established.SETTLED,
            unit=PrivacyUnit.USER,
            relation=budget.relation,
            ledger=(LaplaceEvent(scale=scale, l1_sensitivity=1.0),),
        )
        return SyntheticTables(schema=dataset.schema, frame=frame, guarantee=guarantee)


@dataclass(frozen=True, kw_only=True)
class Stream(Mechanism):
    """The number of reports a step plus Gaussian noise; `noise` 1 is as claimed."""

    name = "fx-stream"
    kind = SENSOR_STREAMS

    noise: float = 1.0
    draws: int = 20

    def release(self, dataset, budget, *, rng):
        counts = dataset.present[dataset.episodes(Split.TEST)].sum(axis=-1)
        stddev = gaussian_stddev(budget, l2_sensitivity=1.0, count=counts.shape[-1])
        event = GaussianEvent(stddev=stddev, l2_sensitivity=1.0, count=counts.shape[-1])
        guarantee = Guarantee(
            established=Established.SETTLED,
            unit=PrivacyUnit.SENSOR_TRAJECTORY,
            relation=budget.relation,
            ledger=(event,),
        )
        return Estimates(
            estimate=counts + rng.normal(0, self.noise * stddev, (self.draws, *counts.shape)),
            spent=np.full(counts.shape[-1], stddev**-2.0),
            guarantee=guarantee,
        )


@dataclass(frozen=True, kw_only=True)
class NonPrivate(Ok):
    """Returns private rows, and says so."""

    name = "fx-nonprivate"
    role = Role.REFERENCE

    def release(self, dataset, budget, *, rng):
        guarantee = Guarantee(
            established=Established.NONE, unit=PrivacyUnit.USER, relation=budget.relation
        )
        return SyntheticTables(schema=dataset.schema, frame=dataset.train, guarantee=guarantee)


@dataclass(frozen=True, kw_only=True)
class Picky(Ok):
    """Supports no budget."""

    name = "fx-picky"

    def supports(self, schema, budget):
        return "it needs a budget above 1000"


class _Metric(Metric):
    kind = USER_TABLES
    components = {"gap": Scale(direction=Direction.LOWER)}  # noqa: RUF012 - as plugins write it


@dataclass(frozen=True, kw_only=True)
class Gap(_Metric):
    """Difference of the mean levels."""

    name = "fx-gap"

    def score(self, reference, release, *, rng):
        gap = abs(reference.test["level"].mean() - release.frame["level"].mean())
        yield Score(component="gap", value=float(gap), unit="m")


@dataclass(frozen=True, kw_only=True)
class Count(_Metric):
    """Difference of the numbers of tables."""

    name = "fx-count"

    def score(self, reference, release, *, rng):
        gap = abs(reference.test[USER].nunique() - release.frame[USER].nunique())
        yield Score(component="gap", value=float(gap))


@dataclass(frozen=True, kw_only=True)
class SlowMetric(_Metric):
    """Takes its time, by default too much of it."""

    name = "fx-slow-metric"

    seconds: float = 60.0

    def score(self, reference, release, *, rng):
        time.sleep(self.seconds)
        return []


@dataclass(frozen=True, kw_only=True)
class NanMetric(_Metric):
    """Gives NaN."""

    name = "fx-nan"

    value: str = "nan"

    def score(self, reference, release, *, rng):
        yield Score(component="gap", value=float(self.value))


@dataclass(frozen=True, kw_only=True)
class RaisingMetric(_Metric):
    """Raises."""

    name = "fx-raising-metric"

    def score(self, reference, release, *, rng):
        raise RuntimeError("no score today")


@hookimpl
def register_datasets():
    return [Tiny, TinyStreams, FromFile]


@hookimpl
def register_mechanisms():
    return [
        *(Ok, OkTwin, Raise, RaiseOnce, RaiseOnRepeat, Sleep, Busy, Chatty, Hog, Kill, Fork),
        *(Overspend, OtherRelation, Leak, Laplace, Stream, NonPrivate, Picky),
    ]


@hookimpl
def register_metrics():
    return [Gap, Count, SlowMetric, NanMetric, RaisingMetric]
