"""What the model is trained on: one split of one user's table a step.

The context is the header and the rows up to a split point, the target the next row, or the end line
after the last; only tokens of the target that could be others are scored. A table that is longer
than the context keeps its last rows, so that the target is never cut (path.md 6.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from panelbench_path.grammar import FORCED
from panelbench_path.likelihood import Texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench_path.grammar import Grammar

TARGETS = ("row", "rest")


def pool_of_lengths(noisy: np.ndarray, *, least: int, most: int) -> np.ndarray:
    """Weights of the split points 1 to `most`: how many tables reach each.

    Args:
        noisy: Released histogram of lengths from `least` to `most`; post-processing of it only.
        least: Fewest rows.
        most: Most rows.
    """
    counts = np.zeros(most + 1)
    counts[least:] = np.clip(noisy, 0.0, None)
    reach = counts[::-1].cumsum()[::-1][1:]
    return np.asarray(reach) if reach.sum() > 0 else np.ones(most)


def drawn_lengths(
    noisy: np.ndarray, stddev: float, *, least: int, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Rows of tables to write, by the released histogram; bins that noise may have made hold less.

    Args:
        noisy: Released histogram of lengths from `least`.
        stddev: Of its noise.
        least: Fewest rows.
        count: How many lengths.
        rng: The source of randomness.
    """
    weights = np.maximum(noisy - stddev * (noisy < 2 * stddev), 0.0)
    if not weights.any():
        weights = np.ones(len(noisy))
    return np.asarray(least + rng.choice(len(weights), count, p=weights / weights.sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """How examples are drawn from users' tables.

    Attributes:
        tables: Codes of each user's table, shape (rows, quantities).
        grammar: Of the form.
        start: Probability of predicting the first row from the header alone.
        pool: Public or released weights of the split points 1, 2, ... for everybody. A user whose
            table does not reach the point drawn predicts the first row, so that the chance that a
            point is drawn does not depend on the length, and lengths are learnt without bias.
        within: Whether points are drawn among those before a row of the user's own table instead:
            no example is spent on ends, which are then not learnt.
        target: "row" or "rest".
        context: Most tokens of a text.
        device: Where the model is.
    """

    tables: list[np.ndarray]
    grammar: Grammar
    start: float
    pool: np.ndarray
    target: str
    context: int
    within: bool = False
    device: str = "cpu"

    def splits(self, users: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A split point for each user: the number of rows in the context."""
        rows = np.array([len(self.tables[user]) for user in users], dtype=np.int64)
        last = rows - 1 if self.within else np.full(len(users), len(self.pool))
        below = np.concatenate([[0.0], self.pool.cumsum()])
        at = rng.random(len(users)) * below[last]
        points = np.searchsorted(below[1:], at, side="right") + 1
        none = (rng.random(len(users)) < self.start) | (below[last] == 0)
        return np.where(none | (points > np.minimum(rows, last)), 0, points)

    def text(self, table: np.ndarray, split: int, keep: int) -> tuple[list[int], list[int]]:
        """Ids and states of one example.

        Args:
            table: Codes.
            split: Number of rows in the context.
            keep: Most tokens of context.
        """
        grammar, rows = self.grammar, table.tolist()
        history: list[list[int]] = []
        room = keep
        last = FORCED
        for number in range(split, 0, -1):
            ids, _, after = grammar.line(number, rows[number - 1])
            last = after if number == split else last
            ids = [*grammar.pieces.rows[number - 1], *ids]
            room -= len(ids)
            if room < 0:
                break
            history.append(ids)
        text = [*grammar.pieces.header, *(i for ids in reversed(history) for i in ids)]
        states = [FORCED] * len(text)
        if not history:
            last = FORCED
        number, first = split, True
        while first or (self.target == "rest" and len(text) < self.context):
            ends = number == len(rows)
            ids, own = grammar.marker(number, last, end=ends)
            text += ids
            states += own
            if ends:
                break
            number, first = number + 1, False
            ids, own, last = grammar.line(number, rows[number - 1])
            text += ids
            states += own
        else:
            if last != FORCED:  # where the last value ends is a choice too
                text.append(grammar.pieces.end[0])
                states.append(last)
        return text, states

    def batches_of(
        self, users: np.ndarray, micro: int, rng: np.random.Generator
    ) -> Iterator[Texts]:
        """An example of each user, the shortest first, `micro` at a time."""
        texts = sorted(self.drawn(users, rng), key=lambda text: len(text[0]))
        for first in range(0, len(texts), micro):
            yield self.padded(texts[first : first + micro])

    def drawn(
        self, users: np.ndarray, rng: np.random.Generator
    ) -> list[tuple[list[int], list[int]]]:
        """Ids and states of an example of each user."""
        room = self.context - len(self.grammar.pieces.header)
        keeps = rng.integers(room // 2, room + 1, len(users))
        splits = self.splits(users, rng)
        return [
            self.text(self.tables[user], split, keep)
            for user, split, keep in zip(users, splits.tolist(), keeps.tolist(), strict=True)
        ]

    def padded(self, texts: list[tuple[list[int], list[int]]]) -> Texts:
        """Some examples, padded on the right."""
        longest = max(len(ids) for ids, _ in texts)
        ids = np.zeros((len(texts), longest), dtype=np.int64)
        states = np.full((len(texts), longest), FORCED)
        for place, (text, own) in enumerate(texts):
            ids[place, : len(text)] = text
            states[place, : len(own)] = own
        return Texts(
            ids=torch.from_numpy(ids).to(self.device),
            states=torch.from_numpy(states).to(self.device),
            allowed=torch.from_numpy(self.grammar.allowed).to(self.device),
        )
