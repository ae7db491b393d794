"""How a channel answers to sensors that pass once a window, as a matrix and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Answers:
    """How a channel's rows answer to one sensor.

    Attributes:
        stay: To a sensor that was there from the start, while it stays, shape (steps,).
        leave: Row k to one that left at step b, shape (steps, steps), 0 unless 1 <= b <= k.
        enter: Row k to one that came at step a, likewise.
        far: To a sensor that is far from the exit at the start, shape (steps,).
        gains: Of the values, shape (steps, values).
    """

    stay: np.ndarray
    leave: np.ndarray
    enter: np.ndarray
    far: np.ndarray
    gains: np.ndarray

    def times(self, scale: float) -> Answers:
        """All of them times `scale`."""
        return Answers(**{name: scale * value for name, value in vars(self).items()})

    def dot(self, other: Answers) -> float:
        """Sum of the products."""
        return sum(float(np.vdot(value, vars(other)[name])) for name, value in vars(self).items())

    def plus(self, scale: float, other: Answers) -> Answers:
        """Sum with `scale` times another."""
        return Answers(
            **{name: value + scale * vars(other)[name] for name, value in vars(self).items()}
        )

    def columns(self) -> np.ndarray:
        """To each sensor in the order of `passage.supports`, shape (steps, sensors)."""
        steps = len(self.stay)
        there = np.triu(np.ones((steps, steps + 1)), 1)[:, 1:] * self.stay[:, None]
        gone = np.hstack([self.leave[:, 1:], np.zeros((steps, 1))])
        return np.hstack([np.zeros((steps, 1)), there + gone, self.enter[:, 1:], self.far[:, None]])

    @classmethod
    def gradient(cls, by_column: np.ndarray, gains: np.ndarray) -> Answers:
        """The transpose of `columns`, `gains` as they are."""
        steps = len(by_column)
        first = by_column[:, 1 : steps + 1]
        leave, enter = np.zeros((steps, steps)), np.zeros((steps, steps))
        leave[:, 1:] = np.tril(first[:, :-1], -1)
        enter[:, 1:] = by_column[:, steps + 1 : 2 * steps]
        return cls(
            stay=np.triu(first).sum(axis=1),
            leave=leave,
            enter=np.tril(enter),
            far=by_column[:, 2 * steps],
            gains=gains,
        )

    def channel(self) -> np.ndarray:
        """The matrix on (counts, arrivals, far at the start, values) that answers so.

        Returns:
            Shape (steps * (1 + values), 2 steps + 1 + steps * values), rows in time order.
        """
        steps, values = self.gains.shape
        onto = np.zeros((steps, 1 + values, 2 * steps + 1 + steps * values))
        change = np.tril(self.leave - self.stay[:, None])
        change[:, 0] = 0.0
        onto[:, 0, :steps] = -change
        onto[:, 0, : steps - 1] += change[:, 1:]
        onto[:, 0, 0] += self.stay
        onto[:, 0, steps : 2 * steps] = self.enter + change
        onto[:, 0, 2 * steps] = self.far - self.stay
        step = np.arange(steps)
        for place in range(values):
            onto[step, 1 + place, 2 * steps + 1 + step * values + place] = self.gains[:, place]
        return onto.reshape(steps * (1 + values), -1)

    @classmethod
    def of_slope(cls, slope: np.ndarray, steps: int, values: int) -> Answers:
        """The transpose of `channel`."""
        onto = slope.reshape(steps, 1 + values, -1)
        change = onto[:, 0, steps : 2 * steps] - onto[:, 0, :steps]
        change[:, 1:] += onto[:, 0, : steps - 1]
        change[:, 0] = 0.0
        change, enter = np.tril(change), np.tril(onto[:, 0, steps : 2 * steps])
        enter[:, 0] = 0.0
        step = np.arange(steps)
        gains = np.empty((steps, values))
        for place in range(values):
            gains[:, place] = onto[step, 1 + place, 2 * steps + 1 + step * values + place]
        far = onto[:, 0, 2 * steps]
        return cls(
            stay=onto[:, 0, 0] - far - change.sum(axis=1),
            leave=change,
            enter=enter,
            far=far,
            gains=gains,
        )
