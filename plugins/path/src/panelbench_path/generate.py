"""Tables written by the model, row by row.

With the grammar, only what the form allows can be drawn, so every row is valid and a table ends
where it was told to, or else where the model says so. Without, rows are written freely, parsed, and
written again in canonical form, and a table ends at the first row that cannot be read: the paper's
way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from panelbench_path.grammar import FORCED
from panelbench_path.parse import read_line
from panelbench_path.reader import Reader, drawn
from panelbench_path.serialise import END

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

    from panelbench_path.grammar import Grammar
    from panelbench_path.serialise import Form
    from panelbench_path.vocabulary import Tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class Writer:
    """How tables are written.

    Attributes:
        model: With the vocabulary of `grammar.pieces`.
        form: Of the tables.
        tokens: Of the model.
        grammar: Of the form.
        context: Most tokens that the model reads; older rows are forgotten beyond.
        constrained: Whether only what the grammar allows can be drawn.
        temperature: Of each draw.
        top_p: Of each draw.
        static: Names of columns that do not change within a table.
    """

    model: PreTrainedModel
    form: Form
    tokens: Tokens
    grammar: Grammar
    context: int
    constrained: bool
    temperature: float
    top_p: float
    static: tuple[str, ...] = ()

    def write(
        self,
        count: int,
        *,
        batch: int,
        rng: np.random.Generator,
        say: Callable[[str], None],
        lengths: np.ndarray | None = None,
    ) -> list[np.ndarray]:
        """Codes of tables that have the fewest rows at least; at most `count` tables.

        Args:
            count: How many to write.
            batch: How many at once.
            rng: The source of randomness.
            say: Where progress goes.
            lengths: Rows of each table, under the grammar only; None where the model decides.
        """
        tables: list[list[list[int]]] = []
        for first in range(0, count, batch):
            size = min(batch, count - first)
            with torch.inference_mode():
                own = None if lengths is None else lengths[first : first + size]
                tables += self._bound(size, rng, own) if self.constrained else self._free(size, rng)
            say(f"{min(first + batch, count)} of {count} tables written")
        least = self.form.schema.min_rows
        return [np.array(table, dtype=np.int64) for table in tables if len(table) >= least]

    def _draw(
        self, scores: torch.Tensor, allowed: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        return drawn(scores, allowed, rng, temperature=self.temperature, top_p=self.top_p)

    def _history(self, table: list[list[int]], room: int) -> list[int]:
        """The header and as many of the last rows as have room."""
        pieces = self.grammar.pieces
        rows: list[list[int]] = []
        for number in range(len(table), 0, -1):
            ids = [*pieces.rows[number - 1], *pieces.line(number, table[number - 1])]
            room -= len(ids)
            if room < len(pieces.header):
                break
            rows.append(ids)
        return [*pieces.header, *(i for ids in reversed(rows) for i in ids)]

    def _bound(
        self, count: int, rng: np.random.Generator, lengths: np.ndarray | None
    ) -> list[list[list[int]]]:
        writing = _Writing(self, count, lengths)
        done: list[list[list[int]]] = []
        for number in range(1, self.form.schema.max_rows + 1):
            done += writing.go_on(number - 1, rng)
            if not writing.tables:
                break
            writing.row(number, rng)
        return done + writing.tables

    def _free(self, count: int, rng: np.random.Generator) -> list[list[list[int]]]:
        tables: list[list[list[int]]] = [[] for _ in range(count)]
        open_tables = list(range(count))
        for number in range(1, self.form.schema.max_rows + 1):
            prompts = [self._history(tables[t], self.context // 2) for t in open_tables]
            lines = self._lines(prompts, number, rng)
            still = []
            for table, line in zip(open_tables, lines, strict=True):
                codes = None
                if not line.lstrip("\n").startswith(END):
                    text = line.lstrip("\n").split("\n", 1)[0]
                    codes = read_line(
                        text, self.form, number, earlier=tables[table], static=self.static
                    )
                if codes is not None:
                    tables[table].append(codes)
                    still.append(table)
            open_tables = still
            if not open_tables:
                break
        return tables

    def _lines(self, prompts: list[list[int]], number: int, rng: np.random.Generator) -> list[str]:
        """What the model writes after each prompt: a line and what may follow it."""
        pieces = self.grammar.pieces
        least = max(len(v) for values in pieces.values(number) for v in values)
        most = 2 + len(pieces.rows[-1]) + sum(len(name) + least for name in pieces.names)
        marks = {ids[0] for ids in (*pieces.rows, pieces.end)}
        reader = Reader(self.model, len(prompts))
        scores = reader.feed(prompts)
        written: list[list[int]] = [[] for _ in prompts]
        for _ in range(most):
            picked = self._draw(scores, None, rng)
            for text, token in zip(written, picked.tolist(), strict=True):
                text.append(token)
            if all(sum(token in marks for token in text) > 1 for text in written):
                break
            scores = reader.feed(picked[:, None].tolist())
        lines = []
        for prompt, text in zip(prompts, written, strict=True):
            before = self.tokens.text(self.form, pieces.ids[prompt].tolist())
            whole = self.tokens.text(self.form, pieces.ids[prompt + text].tolist())
            lines.append(whole[len(before) :])
        return lines


class _Writing:
    """Tables of one batch that are being written under the grammar, all at the same row."""

    def __init__(self, writer: Writer, count: int, lengths: np.ndarray | None) -> None:
        self.lengths = lengths
        self.writer, self.grammar = writer, writer.grammar
        self.tables: list[list[list[int]]] = [[] for _ in range(count)]
        self.reader = Reader(writer.model, count)
        self.pending = [list(self.grammar.pieces.header) for _ in range(count)]
        self.ahead = [False] * count  # whether the first token of what follows is pending already
        values = (*self.grammar.pieces.first, *self.grammar.pieces.later)
        self.longest = len(self.grammar.pieces.rows[-1]) + sum(
            len(name) + max(len(v) for v in both)
            for name, both in zip(self.grammar.pieces.names * 2, values, strict=True)
        )

    def _scores(self) -> torch.Tensor:
        scores = self.reader.feed(self.pending)
        self.pending = [[] for _ in self.tables]
        return scores

    def _append(self, ids: tuple[int, ...]) -> None:
        for pending, ahead in zip(self.pending, self.ahead, strict=True):
            pending.extend(ids[1:] if ahead else ids)
        self.ahead = [False] * len(self.ahead)

    def go_on(self, rows: int, rng: np.random.Generator) -> list[list[list[int]]]:
        """Decide which tables get a further row; those that do not are done."""
        grammar, pieces = self.grammar, self.grammar.pieces
        done: list[list[list[int]]] = []
        state = grammar.decisions[rows]
        if rows and self.reader.tokens + self.longest > self.writer.context:
            self._forget()
        if self.lengths is not None:
            done = self._ended(self.lengths > rows)
            self._append(pieces.rows[rows])
            return done
        if state == FORCED:
            self._append(pieces.rows[rows])
            return done
        if grammar.split:
            self._append(pieces.end[: grammar.split])
        scores = self._scores()
        allowed = np.broadcast_to(grammar.allowed[state], tuple(scores.shape)).copy()
        picked = self.writer._draw(scores, allowed, rng)  # noqa: SLF001 - a part of the writer
        done = self._ended(picked != pieces.end[grammar.split])
        self.pending = [list(pieces.rows[rows][grammar.split :]) for _ in self.tables]
        self.ahead = [False] * len(self.tables)
        return done

    def _ended(self, more: np.ndarray) -> list[list[list[int]]]:
        """Leave behind the tables that get no further row."""
        done = [table for table, on in zip(self.tables, more, strict=True) if not on]
        if done:
            kept = np.flatnonzero(more)
            self.tables = [self.tables[table] for table in kept]
            self.pending = [self.pending[table] for table in kept]
            self.ahead = [self.ahead[table] for table in kept]
            if self.lengths is not None:
                self.lengths = self.lengths[kept]
            if len(kept):
                self.reader.keep(kept)
        return done

    def _forget(self) -> None:
        """Start again with the last rows that fill half of the context."""
        self.reader = Reader(self.writer.model, len(self.tables))
        tails = [[self.grammar.pieces.end[0]] if ahead else [] for ahead in self.ahead]
        self.pending = [
            [*self.writer._history(table, self.writer.context // 2), *tail]  # noqa: SLF001 - a part of the writer
            for table, tail in zip(self.tables, tails, strict=True)
        ]

    def row(self, number: int, rng: np.random.Generator) -> None:
        """Write a row of every table."""
        for table in self.tables:
            table.append([])
        for name, root in zip(
            self.grammar.pieces.names, self.grammar.roots[number > 1], strict=True
        ):
            self._append(name)
            self._value(root, rng)

    def _value(self, root: int, rng: np.random.Generator) -> None:
        grammar = self.grammar
        at = [root] * len(self.tables)
        open_tables = list(range(len(at)))
        while open_tables:
            open_tables = [table for table in open_tables if not self._forced(table, at)]
            if not open_tables:
                break
            scores = self._scores()[open_tables]
            states = [at[table] for table in open_tables]
            picked = self.writer._draw(scores, grammar.allowed[states], rng)  # noqa: SLF001 - a part of the writer
            still = []
            for table, token in zip(open_tables, picked.tolist(), strict=True):
                self.pending[table].append(token)
                following = grammar.step[at[table]].get(token)
                if following is None:
                    self.ahead[table] = True
                    self.tables[table][-1].append(grammar.codes[at[table]])
                else:
                    at[table] = following
                    still.append(table)
            open_tables = still

    def _forced(self, table: int, at: list[int]) -> bool:
        """Take the steps that leave no choice; whether the value is whole."""
        grammar = self.grammar
        while True:
            steps = grammar.step[at[table]]
            if not steps:
                self.tables[table][-1].append(grammar.codes[at[table]])
                return True
            if len(steps) > 1 or at[table] in grammar.codes:
                return False
            (token,) = steps
            self.pending[table].append(token)
            at[table] = steps[token]
