"""Random longitudinal tables, made up, as token ids: what the shipped text model is trained on.

One population is one random process: regimes (a hidden Markov chain, for one to three user types),
autoregressions, factors shared by columns, traits of a user, seasons and noise, added with random
weights, then moved into public bounds, cut into categories, or made missing. Schemas, lengths and
clocks vary. No real data is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panelbench_path import reserved as r

ROWS = 64
ORDINARY, WIDE = 240, 420
"""Most tokens of a table in most populations, and in the others."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Tables of one population.

    Attributes:
        ids: Token ids, shape (tables, tokens), padded with 0.
        states: Row of `allowed` that each id is drawn under, -1 where it is forced or padding.
        allowed: What may stand in each state, shape (states, tokens of the model).
    """

    ids: np.ndarray
    states: np.ndarray
    allowed: np.ndarray


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """How one quantity is written: the ids of each table and row, and the masks of its tokens."""

    kind: str
    ids: np.ndarray
    masks: tuple[np.ndarray, ...]


def population(rng: np.random.Generator, *, tables: int) -> Drawn:
    """Draw a process and tables from it; rows of a table that is too long are cut at both ends."""
    columns = int(rng.integers(1, 9))
    latent = _latent(rng, tables, ROWS, columns)
    cells = [_column(rng, latent[..., column]) for column in range(columns)]
    first = list(cells)
    if rng.random() < 0.25:
        clock, gap = _times(rng, tables)
        first, cells = [clock, *cells], [gap, *cells]
    wide = 1 + sum(1 + cell.ids.shape[-1] for cell in cells)
    most = max(2, min(ROWS, (WIDE if rng.random() < 0.2 else ORDINARY) // wide))
    lengths, least = _lengths(rng, tables)
    starts = np.where(lengths > most, rng.integers(0, ROWS, tables), 0)
    starts = np.minimum(starts, np.maximum(lengths - most, 0))
    return _written(first, cells, lengths, starts, most=most, least=least)


def _written(
    first: list[_Cell],
    later: list[_Cell],
    lengths: np.ndarray,
    starts: np.ndarray,
    *,
    most: int,
    least: int,
) -> Drawn:
    masks: list[np.ndarray] = []
    lines, marks = [], []
    for cells in (first, later):
        parts: list[np.ndarray] = []
        places: list[int] = []
        for index, cell in enumerate(cells):
            shape = (*cell.ids.shape[:2], 1)
            parts += [np.full(shape, r.NAMED + index), cell.ids]
            places += [-1, *range(len(masks), len(masks) + len(cell.masks))]
            masks += cell.masks
        lines.append(np.concatenate(parts, axis=2))
        marks.append(places)
    tables, rows, wide = lines[0].shape
    body = lines[1].copy()
    body[:, 0] = lines[0][:, 0]
    drawn = np.broadcast_to(np.array(marks[1]), body.shape).copy()
    drawn[:, 0] = marks[0]
    markers = np.broadcast_to(r.ROWS + np.arange(rows), (tables, rows))[..., None]
    goes_on = (np.arange(rows) >= least)[None, :, None] & (markers > r.ROWS)
    choice = np.where(goes_on, len(masks) + np.arange(rows)[None, :, None], -1)
    for number in range(rows):
        mask = np.zeros(r.SIZE, dtype=bool)
        mask[[r.ROWS + number, r.STOP]] = True
        masks.append(mask)
    body = np.concatenate([markers, body], axis=2)
    drawn = np.concatenate([np.broadcast_to(choice, markers.shape), drawn], axis=2)
    head = [r.START, *(r.KINDS[cell.kind] for cell in first)]
    ids = np.zeros((tables, len(head) + most * (wide + 1) + 1), dtype=np.int64)
    states = np.full(ids.shape, -1)
    ids[:, : len(head)] = head
    for table in range(tables):
        rows_kept = slice(starts[table], min(lengths[table], starts[table] + most))
        text, own = body[table, rows_kept].ravel(), drawn[table, rows_kept].ravel().copy()
        own[0] = -1
        end = len(head) + len(text)
        ids[table, len(head) : end], states[table, len(head) : end] = text, own
        if rows_kept.stop == lengths[table] < rows:
            ids[table, end] = r.STOP
            states[table, end] = choice[0, lengths[table], 0]
    again = (ids[:, 1:] == r.MISSING) & (ids[:, :-1] == r.MISSING)
    states[:, 1:][again] = -1  # the second token of a missing number is forced
    used = int((ids != 0).sum(axis=1).max())  # the start token is 0 too, but comes once
    ids, states = ids[:, : used + 1], states[:, : used + 1]
    return Drawn(ids=ids, states=states, allowed=np.stack(masks))


def _lengths(rng: np.random.Generator, tables: int) -> tuple[np.ndarray, int]:
    """Rows of each table, and the fewest that are possible."""
    least = int(rng.integers(1, 9))
    mean = float(rng.choice([4.0, 8.0, 16.0, 40.0]))
    shape = int(rng.integers(4))
    if shape == 0:
        more = rng.poisson(mean, tables)
    elif shape == 1:
        more = rng.geometric(1 / mean, tables) - 1
    elif shape == 2:
        more = rng.integers(0, int(2 * mean) + 1, tables)
    else:
        more = np.full(tables, int(mean))
    return np.minimum(least + more, ROWS), least


def _latent(rng: np.random.Generator, tables: int, rows: int, columns: int) -> np.ndarray:
    """A real number for each cell."""
    shape = (tables, rows, columns)
    states = int(rng.integers(2, 7))
    spread = rng.standard_normal((states, columns)) * (rng.random(columns) < 0.85)
    season = np.arange(rows)[None, :, None] / rng.uniform(3, 24)
    parts = [
        _regimes(rng, tables, rows, states) @ spread,
        _autoregressions(rng, tables, rows, columns),
        _autoregressions(rng, tables, rows, 2) @ rng.standard_normal((2, columns)),
        np.broadcast_to(
            rng.standard_normal((tables, 1, 2)) @ rng.standard_normal((2, columns)), shape
        ),
        np.sin(2 * np.pi * (season + rng.random((tables, 1, 1)) + rng.random(columns))),
    ]
    weight = rng.dirichlet([1.6, 0.6, 0.4, 0.4, 0.1])
    signal = sum(
        np.sqrt(w) * part / max(part.std(), 1e-9) for w, part in zip(weight, parts, strict=True)
    )
    factors = rng.standard_normal((columns, 2)) * rng.uniform(0, 1.5)
    covariance = factors @ factors.T + np.eye(columns)
    noise = rng.standard_normal(shape) @ np.linalg.cholesky(covariance).T
    noise /= np.sqrt(np.diag(covariance))
    share = rng.beta(1.5, 1.5, columns)  # of the noise
    return np.asarray(np.sqrt(1 - share) * signal / signal.std() + np.sqrt(share) * noise)


def _regimes(rng: np.random.Generator, tables: int, rows: int, states: int) -> np.ndarray:
    """Hidden states as indicators, shape (tables, rows, states)."""
    types = int(rng.integers(1, 4))
    stay = rng.beta(5, 1.3, (types, states))
    leave = rng.dirichlet(np.full(states, 0.6), (types, states))
    matrix = stay[..., None] * np.eye(states) + (1 - stay)[..., None] * leave
    start = rng.dirichlet(np.full(states, 0.7), types)
    kind = rng.integers(0, types, tables)
    state = np.zeros((tables, rows), dtype=np.int64)
    for row in range(rows):
        chances = start[kind] if row == 0 else matrix[kind, state[:, row - 1]]
        state[:, row] = (rng.random((tables, 1)) > chances.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return np.eye(states)[state]


def _autoregressions(rng: np.random.Generator, tables: int, rows: int, columns: int) -> np.ndarray:
    memory = rng.beta(2, 1, columns) * rng.choice([1.0, 1.0, 1.0, -0.5], columns)
    shocks = rng.standard_normal((tables, rows, columns))
    value = shocks.copy()
    for row in range(1, rows):
        value[:, row] = memory * value[:, row - 1] + np.sqrt(1 - memory**2) * shocks[:, row]
    return value


def _mask(first: int, count: int) -> np.ndarray:
    mask = np.zeros(r.SIZE, dtype=bool)
    mask[first : first + count] = True
    return mask


def _number(levels: np.ndarray, count: int, kind: str) -> _Cell:
    """Levels from 0 to count - 1 as one or two tokens."""
    fine = -(-count // r.BASE)
    coarse = -(-count // fine)
    if fine == 1:
        ids, masks = r.COARSE + levels[..., None], (_mask(r.COARSE, count),)
        return _Cell(kind=kind, ids=ids, masks=masks)
    ids = np.stack([r.COARSE + levels // fine, r.FINE + levels % fine], axis=-1)
    return _Cell(kind=kind, ids=ids, masks=(_mask(r.COARSE, coarse), _mask(r.FINE, fine)))


def _column(rng: np.random.Generator, latent: np.ndarray) -> _Cell:
    cell = _numeric(rng, latent) if rng.random() < 0.7 else _category(rng, latent)
    if rng.random() >= 0.3:
        return cell
    rate = rng.beta(0.7, 1.5)
    always = rng.random((*latent.shape[:1], 1)) < rate
    gone = always if rng.random() < 0.3 else rng.random(latent.shape) < rate
    ids = np.where(gone[..., None], r.MISSING, cell.ids)
    masks = (cell.masks[0] | _mask(r.MISSING, 1), *cell.masks[1:])
    return _Cell(kind=cell.kind, ids=ids, masks=masks)


def _numeric(rng: np.random.Generator, latent: np.ndarray) -> _Cell:
    count = int(rng.integers(6, r.BASE + 1)) if rng.random() < 0.35 else 0
    count = count or r.BASE * int(np.exp(rng.uniform(np.log(2), np.log(64))))
    place, size = rng.uniform(0.15, 0.85), np.exp(rng.uniform(np.log(0.025), np.log(0.25)))
    bend = rng.choice([0.0, 0.0, 0.5, -0.5])
    shaped = np.expm1(bend * latent) / bend if bend else latent
    levels = np.round((place + size * shaped) * count).clip(0, count - 1).astype(np.int64)
    if rng.random() < 0.15:  # most values on a coarser grid, as people round
        step = max(2, count // int(rng.integers(8, 40)))
        rounded = (levels // step * step).clip(0, count - 1)
        levels = np.where(rng.random(levels.shape) < rng.uniform(0.5, 1), rounded, levels)
    return _number(levels, count, "number" if count > r.BASE else "short number")


def _category(rng: np.random.Generator, latent: np.ndarray) -> _Cell:
    used = int(rng.integers(2, 13)) if rng.random() < 0.8 else int(rng.integers(13, 49))
    count = used if rng.random() < 0.7 else int(rng.integers(used, r.BASE + 1))
    names = rng.permutation(count)[:used]
    share = rng.dirichlet(np.full(used, rng.uniform(0.3, 3)))
    ranks = latent.argsort(axis=None).argsort().reshape(latent.shape) / latent.size
    picked = np.searchsorted(share.cumsum()[:-1], ranks)
    flip = rng.random(latent.shape) < rng.beta(1, 3)
    picked = np.where(flip, rng.choice(used, latent.shape, p=share), picked)
    ids = r.CATEGORIES + names[picked][..., None]
    return _Cell(kind="category", ids=ids, masks=(_mask(r.CATEGORIES, count),))


def _times(rng: np.random.Generator, tables: int) -> tuple[_Cell, _Cell]:
    """A clock for first rows and gaps for later ones, as `grids` has them for minutes."""
    clock = rng.normal(rng.uniform(0, 1440), rng.uniform(60, 700), (tables, ROWS))
    gap = rng.normal(rng.uniform(40, 460), np.exp(rng.uniform(1.0, 4.5)), (tables, ROWS))
    return (
        _number(np.mod(clock, 1440).astype(np.int64), 1440, "time"),
        _number(gap.clip(0, 492).astype(np.int64), 493, "time"),
    )
