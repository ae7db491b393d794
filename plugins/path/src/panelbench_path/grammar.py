"""What may come next: the legal rows of a form as an automaton over its vocabulary.

A state is a place inside a value (a node of the tree of that column's values) or the choice
between a further row and the end. Everything else is forced, so it is neither scored in training
nor drawn in generation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from panelbench import DataError

if TYPE_CHECKING:
    from panelbench_path.vocabulary import Ids, Pieces

FORCED = -1
"""The state of a token that cannot be another."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """The way to one value.

    Attributes:
        ids: Its tokens.
        states: The state that each is drawn in, `FORCED` where there is one way on only.
        after: The state in which the first token of what follows is drawn, `FORCED` where the
            value cannot go on.
    """

    ids: Ids
    states: tuple[int, ...]
    after: int


@dataclass(kw_only=True, eq=False)
class _Builder:
    """Collects states."""

    size: int
    allowed: list[np.ndarray] = field(default_factory=list)
    step: list[dict[int, int]] = field(default_factory=list)
    codes: dict[int, int] = field(default_factory=dict)

    def state(self) -> int:
        self.allowed.append(np.zeros(self.size, dtype=bool))
        self.step.append({})
        return len(self.allowed) - 1

    def tree(self, values: tuple[Ids, ...], after: set[int], column: int) -> list[Value]:
        """States of one column's values, `after` being what may follow a whole value."""
        root = self.state()
        paths = []
        for ids in values:
            at, path = root, []
            for token in ids:
                path.append(at)
                if token not in self.step[at]:
                    self.step[at][token] = self.state()
                    self.allowed[at][token] = True
                at = self.step[at][token]
            paths.append((ids, path, at))
        for code, (_, _, at) in enumerate(paths):
            self.codes[at] = code
        for _, _, at in paths:
            inner = set(self.step[at])
            if inner & after or (inner and len(after) > 1):
                raise DataError(
                    f"The model's tokenizer cannot tell where a value of column {column + 1} ends; "
                    f"take another model."
                )
            if inner:
                self.allowed[at][list(after)] = True
        found = []
        for ids, path, at in paths:
            states = tuple(s if self.allowed[s].sum() > 1 else FORCED for s in path)
            found.append(Value(ids=ids, states=states, after=at if self.step[at] else FORCED))
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Grammar:
    """The automaton of one form.

    Attributes:
        pieces: Its pieces.
        allowed: Tokens allowed in each state, shape (states, vocabulary).
        step: The next state by token, for each state.
        codes: The code of the value that ends in a state.
        roots: For row 1 and later rows, the state in which each quantity's value begins.
        first: For each quantity the way to each value in row 1.
        later: The same in later rows.
        decisions: For each number of rows so far, the state that chooses between a further row and
            the end; `FORCED` where the public lengths leave no choice.
        split: Where the tokens of a row marker and of the end line part.
    """

    pieces: Pieces
    allowed: np.ndarray
    step: list[dict[int, int]]
    codes: dict[int, int]
    roots: tuple[tuple[int, ...], tuple[int, ...]]
    first: tuple[list[Value], ...]
    later: tuple[list[Value], ...]
    decisions: tuple[int, ...]
    split: int

    @classmethod
    def of(cls, pieces: Pieces, *, min_rows: int) -> Grammar:
        """Build it.

        Raises:
            DataError: Where the tokenizer leaves open where a value ends.
        """
        builder = _Builder(size=pieces.size)
        starts = [{name[0]} for name in pieces.names[1:]]
        starts.append({pieces.end[0], *(row[0] for row in pieces.rows[1:])})
        ways: list[tuple[list[Value], ...]] = []
        roots: list[tuple[int, ...]] = []
        for values in (pieces.first, pieces.later):
            if ways and values == pieces.first:
                ways, roots = [*ways, ways[0]], [*roots, roots[0]]
                break
            way, root = [], []
            for column, (each, after) in enumerate(zip(values, starts, strict=True)):
                root.append(len(builder.allowed))
                way.append(builder.tree(each, after, column))
            ways.append(tuple(way))
            roots.append(tuple(root))
        split = _parting([*pieces.rows[1:], pieces.end])
        decisions = []
        for rows in range(len(pieces.rows) + 1):
            if min_rows <= rows < len(pieces.rows) and rows:
                state = builder.state()
                builder.allowed[state][[pieces.rows[rows][split], pieces.end[split]]] = True
                decisions.append(state)
            else:
                decisions.append(FORCED)
        return cls(
            pieces=pieces,
            allowed=np.stack(builder.allowed),
            step=builder.step,
            codes=builder.codes,
            roots=(roots[0], roots[1]),
            first=ways[0],
            later=ways[1],
            decisions=tuple(decisions),
            split=split,
        )

    def ways(self, number: int) -> tuple[list[Value], ...]:
        """The ways to values in row `number`, for each quantity."""
        return self.first if number == 1 else self.later

    def line(self, number: int, codes: list[int]) -> tuple[list[int], list[int], int]:
        """Ids of row `number` without its marker, their states, and the state after it."""
        ids: list[int] = []
        states: list[int] = []
        after = FORCED
        for name, ways, code in zip(self.pieces.names, self.ways(number), codes, strict=True):
            value = ways[code]
            ids += name
            states += [after, *[FORCED] * (len(name) - 1)]
            ids += value.ids
            states += value.states
            after = value.after
        return ids, states, after

    def marker(self, rows: int, after: int, *, end: bool) -> tuple[list[int], list[int]]:
        """Ids and states of what follows `rows` rows: the next row's marker, or the end line."""
        ids = self.pieces.end if end else self.pieces.rows[rows]
        states = [FORCED] * len(ids)
        states[self.split] = self.decisions[rows]
        if after != FORCED:
            states[0] = after
        return list(ids), states


def _parting(markers: list[Ids]) -> int:
    """How many tokens the end line has in common with every row marker."""
    end = markers[-1]
    for place, token in enumerate(end):
        others = [ids[place] if place < len(ids) else None for ids in markers[:-1]]
        if token not in others:
            return place
        if any(other != token for other in others):
            break
    raise DataError("The model's tokenizer cannot tell a row from the end; take another model.")
