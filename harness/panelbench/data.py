"""What mechanisms read: user tables, sensor streams, and the files behind them.

Both kinds of dataset turn into named arrays plus a JSON-able description and back
(`to_arrays`, `from_arrays`), which is how the harness stores, hashes and hands them to children.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from panelbench.errors import DataError
from panelbench.schema import (
    DATA_DIRECTORY,
    SENSOR_STREAMS,
    TIME,
    USER,
    USER_TABLES,
    ColumnKind,
    Schema,
)


def check_frame(frame: pd.DataFrame, schema: Schema, *, what: str) -> pd.DataFrame:
    """Return `frame` in canonical form, or say what is wrong with it in one sentence.

    Canonical: columns user (int64), time (float64), then the schema's columns in order (float64,
    or `pandas.Categorical` over the schema's categories), sorted by user and time, fresh index.

    Raises:
        DataError: On a missing or extra column, a value that is no number or not a category, a
            missing value where none is allowed, or times that do not increase within a user.
    """
    expected = [USER, TIME, *(column.name for column in schema.columns)]
    if sorted(map(str, frame.columns)) != sorted(expected):
        raise DataError(f"{what} must have the columns {expected}, got {list(frame.columns)}.")
    canonical: dict[str, Any] = {
        USER: frame[USER].to_numpy(dtype=np.int64),
        TIME: frame[TIME].to_numpy(dtype=np.float64),
    }
    for column in schema.columns:
        values = frame[column.name]
        if column.kind is ColumnKind.CATEGORICAL:
            if isinstance(values.dtype, pd.CategoricalDtype):
                values = values.astype(object)
            unknown = set(values.dropna().unique()) - set(column.categories)
            if unknown:
                raise DataError(
                    f"{what}, column '{column.name}': {min(map(str, unknown))!r} is not among the "
                    f"{len(column.categories)} categories of the schema."
                )
            canonical[column.name] = pd.Categorical(values, categories=list(column.categories))
            missing = values.isna().to_numpy()
        else:
            try:
                numbers = values.to_numpy(dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise DataError(f"{what}, column '{column.name}': {error}.") from error
            if np.isinf(numbers).any():
                raise DataError(f"{what}, column '{column.name}': a value is infinite.")
            canonical[column.name] = numbers
            missing = np.isnan(numbers)
        if missing.any() and not column.nullable:
            raise DataError(
                f"{what}, column '{column.name}': row {int(np.argmax(missing))} is missing, but "
                f"the schema allows no missing values there."
            )
    result = pd.DataFrame(canonical).sort_values([USER, TIME], kind="stable", ignore_index=True)
    if not np.isfinite(result[TIME].to_numpy()).all():
        raise DataError(f"{what}: a time is missing or infinite.")
    same_user = result[USER].to_numpy()[1:] == result[USER].to_numpy()[:-1]
    if (same_user & (np.diff(result[TIME].to_numpy()) <= 0)).any():
        raise DataError(f"{what}: two rows of one user have the same time.")
    return result


def frame_to_arrays(frame: pd.DataFrame, schema: Schema, prefix: str) -> dict[str, np.ndarray]:
    """A canonical frame as plain arrays; categories become codes, -1 for missing."""
    arrays = {
        f"{prefix}.{USER}": frame[USER].to_numpy(),
        f"{prefix}.{TIME}": frame[TIME].to_numpy(),
    }
    for column in schema.columns:
        values = frame[column.name]
        if column.kind is ColumnKind.CATEGORICAL:
            arrays[f"{prefix}.{column.name}"] = values.cat.codes.to_numpy(dtype=np.int32)
        else:
            arrays[f"{prefix}.{column.name}"] = values.to_numpy()
    return arrays


def frame_from_arrays(arrays: dict[str, np.ndarray], schema: Schema, prefix: str) -> pd.DataFrame:
    """The inverse of `frame_to_arrays`."""
    data: dict[str, Any] = {
        USER: arrays[f"{prefix}.{USER}"],
        TIME: arrays[f"{prefix}.{TIME}"],
    }
    for column in schema.columns:
        values = arrays[f"{prefix}.{column.name}"]
        if column.kind is ColumnKind.CATEGORICAL:
            data[column.name] = pd.Categorical.from_codes(
                values.tolist(), categories=pd.Index(column.categories)
            )
        else:
            data[column.name] = values
    return pd.DataFrame(data)


@dataclass(frozen=True, kw_only=True)
class UserTables:
    """A collection of user tables over one schema, split by user.

    Attributes:
        schema: Public metadata.
        train: The private rows a mechanism is given. One long frame: user, time, then the
            schema's columns; canonical as in `check_frame`. Lengths of tables may differ.
        test: Rows of other users, which only metrics see.
        repairs: What the loader repaired or left out, counted, by a stable name.
        extra: JSON-able facts that metrics need, for example a simulator's true parameters.
    """

    kind: ClassVar[str] = USER_TABLES

    schema: Schema
    train: pd.DataFrame
    test: pd.DataFrame
    repairs: dict[str, int] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "train", check_frame(self.train, self.schema, what="train"))
        object.__setattr__(self, "test", check_frame(self.test, self.schema, what="test"))
        shared = set(self.train[USER].unique()) & set(self.test[USER].unique())
        if shared:
            raise DataError(f"User {min(shared)} is in train and in test.")
        for name, frame in (("train", self.train), ("test", self.test)):
            rows = frame[USER].value_counts()
            odd = rows[(rows < self.schema.min_rows) | (rows > self.schema.max_rows)]
            if len(odd):
                raise DataError(
                    f"{name}: user {odd.index[0]} has {odd.iloc[0]} rows, the schema promises "
                    f"{self.schema.min_rows} to {self.schema.max_rows}."
                )

    def for_mechanism(self) -> Self:
        """The dataset as a mechanism may see it: without the test users and the extra facts."""
        return dataclasses.replace(self, test=self.test.iloc[:0], extra={}, repairs={})

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Named arrays and a JSON-able description."""
        arrays = {
            **frame_to_arrays(self.train, self.schema, "train"),
            **frame_to_arrays(self.test, self.schema, "test"),
        }
        return arrays, {
            "schema": self.schema.to_json(),
            "repairs": self.repairs,
            "extra": self.extra,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Self:
        """The inverse of `to_arrays`."""
        schema = Schema.from_json(meta["schema"])
        return cls(
            schema=schema,
            train=frame_from_arrays(arrays, schema, "train"),
            test=frame_from_arrays(arrays, schema, "test"),
            repairs=meta["repairs"],
            extra=meta["extra"],
        )


class Split(IntEnum):
    """Which part an episode belongs to."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


@dataclass(frozen=True, kw_only=True)
class SensorStreams:
    """Episodes (windows) of a sensor array with presence, and the state to be estimated.

    The guarantee protects the sensors of the *test* episodes. Training and validation episodes
    are other vehicles; fitting on them is not covered, and a mechanism's guarantee says so.

    Attributes:
        schema: Public metadata; `schema.columns` names the measured quantities in order,
            `schema.state` the state.
        observations: Y, shape (episodes, steps, sensors, columns), NaN where absent. The sensor
            axis is padding: its length is not public.
        present: Shape (episodes, steps, sensors), True where a sensor reports.
        state: X, shape (episodes, steps).
        split: Shape (episodes,), values of `Split`.
        step_seconds: Seconds between steps.
        repairs: As in `UserTables`.
        extra: As in `UserTables`.
    """

    kind: ClassVar[str] = SENSOR_STREAMS

    schema: Schema
    observations: np.ndarray
    present: np.ndarray
    state: np.ndarray
    split: np.ndarray
    step_seconds: float
    repairs: dict[str, int] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        episodes, steps = self.state.shape
        expected = (episodes, steps, self.present.shape[-1], len(self.schema.columns))
        if self.observations.shape != expected or self.present.shape != expected[:3]:
            raise DataError(
                f"Observations and presence must have the shapes {expected} and {expected[:3]}, "
                f"got {self.observations.shape} and {self.present.shape}."
            )
        if self.split.shape != (episodes,) or not np.isin(self.split, list(Split)).all():
            raise DataError("split needs one value of Split for each episode.")
        if steps != self.schema.max_rows or self.schema.state is None:
            raise DataError("Sensor streams need a schema with a state and max_rows = steps.")
        if not self.step_seconds > 0:
            raise DataError(f"step_seconds must be positive, got {self.step_seconds}.")
        if not np.isfinite(self.observations[self.present]).all():
            raise DataError("A present sensor reports a value that is not finite.")

    def episodes(self, split: Split) -> np.ndarray:
        """Indices of the episodes in `split`, in order."""
        return np.flatnonzero(self.split == split)

    def for_mechanism(self) -> Self:
        """The dataset as a mechanism may see it: without the state of the test episodes."""
        state = np.where((self.split == Split.TEST)[:, None], np.nan, self.state)
        return dataclasses.replace(self, state=state, extra={}, repairs={})

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Named arrays and a JSON-able description."""
        arrays = {
            name: getattr(self, name) for name in ("observations", "present", "state", "split")
        }
        return arrays, {
            "schema": self.schema.to_json(),
            "step_seconds": self.step_seconds,
            "repairs": self.repairs,
            "extra": self.extra,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Self:
        """The inverse of `to_arrays`."""
        return cls(
            **arrays,
            schema=Schema.from_json(meta["schema"]),
            step_seconds=meta["step_seconds"],
            repairs=meta["repairs"],
            extra=meta["extra"],
        )


Dataset = UserTables | SensorStreams


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file that a dataset reads, by its path below the data directory.

    Attributes:
        path: Path below the data directory, with forward slashes.
        sha256: Expected hash in hexadecimal, or None where any release of the file will do.
        url: Where it can be fetched without an account, or None.
        instructions: How a person gets the official file, one sentence.
        required: False for one of several alternatives.
    """

    path: str
    instructions: str
    sha256: str | None = None
    url: str | None = None
    required: bool = True


def data_directory() -> Path:
    """The folder named by the environment variable PANELBENCH_DATA (`--data` sets it).

    Raises:
        DataError: Where none is named, or it is not a folder.
    """
    named = os.environ.get(DATA_DIRECTORY)
    if not named:
        raise DataError(
            f"No data directory is named; pass --data FOLDER or set {DATA_DIRECTORY}, "
            f"and see `panelbench data list` for what belongs there."
        )
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise DataError(f"The data directory '{named}' is not a folder; name one that exists.")
    return folder
