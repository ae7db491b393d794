"""What a mechanism gives back and may be published: synthetic tables or estimates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from panelbench.data import check_frame, frame_from_arrays, frame_to_arrays
from panelbench.errors import DataError
from panelbench.privacy import Guarantee
from panelbench.schema import SENSOR_STREAMS, USER_TABLES, Schema

if TYPE_CHECKING:
    import pandas as pd


def _guaranteed(guarantee: object) -> None:
    if not isinstance(guarantee, Guarantee):
        raise DataError(f"A release needs a Guarantee, got {type(guarantee).__name__}.")


@dataclass(frozen=True, kw_only=True)
class SyntheticTables:
    """Synthetic user tables over the schema of the data, with the guarantee they satisfy.

    Attributes:
        schema: The schema of the dataset.
        frame: Canonical long frame as in `panelbench.data.check_frame`.
        guarantee: What the release satisfies; the harness recomputes it.
        copied_users: Users of `train` whose real rows this release contains (references that are
            not private). Metrics leave them out of the train reference, else every distance is 0.
        info: JSON-able facts for readers, such as rounds run. They are part of the release, so
            they may depend on private data only where the guarantee covers it.
    """

    kind: ClassVar[str] = USER_TABLES

    schema: Schema
    frame: pd.DataFrame
    guarantee: Guarantee
    copied_users: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _guaranteed(self.guarantee)
        frame = check_frame(self.frame, self.schema, what="The release")
        if not len(frame):
            raise DataError("The release has no rows; a mechanism must return at least one table.")
        object.__setattr__(self, "frame", frame)

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Named arrays and a JSON-able description (without the guarantee)."""
        arrays = frame_to_arrays(self.frame, self.schema, "release")
        arrays["copied_users"] = self.copied_users
        return arrays, {"schema": self.schema.to_json(), "info": self.info}

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, np.ndarray], meta: dict[str, Any], guarantee: Guarantee
    ) -> Self:
        """The inverse of `to_arrays`."""
        schema = Schema.from_json(meta["schema"])
        return cls(
            schema=schema,
            frame=frame_from_arrays(arrays, schema, "release"),
            guarantee=guarantee,
            copied_users=arrays["copied_users"],
            info=meta["info"],
        )


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Estimates of the state in the test episodes, with the budget spent at each step.

    Attributes:
        estimate: Shape (noise draws, test episodes, steps), in the unit of the state. Each draw is
            an independent run of the mechanism on every episode, for the sake of evaluation; the
            guarantee is that of one run.
        spent: What each step spent, as a Gaussian-DP parameter squared (q_k; sum q_k = Q =
            2 B_G / alpha), shape (steps,) where it is fixed or like `estimate` where it adapts.
        guarantee: What one run on one episode satisfies.
        info: As in `SyntheticTables`.
    """

    kind: ClassVar[str] = SENSOR_STREAMS

    estimate: np.ndarray
    spent: np.ndarray
    guarantee: Guarantee
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _guaranteed(self.guarantee)
        if self.estimate.ndim != 3:
            raise DataError(
                f"Estimates need the shape (draws, episodes, steps), got {self.estimate.shape}."
            )
        if not np.isfinite(self.estimate).all():
            raise DataError("An estimate is not finite.")
        if self.spent.shape not in ((self.estimate.shape[-1],), self.estimate.shape):
            raise DataError(f"spent has the shape {self.spent.shape}, which fits no estimate.")
        if not (self.spent >= 0).all():
            raise DataError("What a step spends cannot be negative.")

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Named arrays and a JSON-able description (without the guarantee)."""
        return {"estimate": self.estimate, "spent": self.spent}, {"info": self.info}

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, np.ndarray], meta: dict[str, Any], guarantee: Guarantee
    ) -> Self:
        """The inverse of `to_arrays`."""
        return cls(**arrays, guarantee=guarantee, info=meta["info"])


Release = SyntheticTables | Estimates
