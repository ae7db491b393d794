"""The compiled part of `nearest`: the search through references by rising bound.

`search` warps `LANES` pairs side by side. numba leaves LLVM's vectorizer for straight-line code
switched off, and the one for loops cannot keep a recurrence in registers; so this module has a type
of four floats, with six functions, in which the recurrence reads as if for one number.

All of it is one module because numba keeps compiled code under the state of the one file that a
function is in: split over two, a change in one would leave stale code of the other.
"""

# numba's and LLVM's objects are untyped, and intrinsics take a typing context that few need:
# ruff: noqa: ANN401, ARG001
# mypy: disable-error-code="untyped-decorator, misc, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic
from numba.extending import models, register_model

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray

LANES = 4
intrinsic: Any = _intrinsic
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_ABSOLUTE = f"llvm.fabs.v{LANES}f64"
_ALIGNMENT = 8
_LOWERED = 1.0 - 1e-9  # lowers a sum of bounds and distances by more than its rounding error

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile with numba, without the interpreter lock, and keep the code where a folder allows."""
    kept: Callable[P, R]
    try:
        kept = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba found no folder that it may write to
        kept = numba.njit(nogil=True)(function)
    return kept


class LanesType(types.Type):
    """numba's type of `LANES` floats."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


_LANES_TYPE = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, frontend: Any) -> None:
        super().__init__(manager, frontend, _VECTOR)


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.bitcast(builder.gep(array.data, [args[1]]), _VECTOR.as_pointer())


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """The lanes at `array[index : index + LANES]`; nothing checks the bounds."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature, args), align=_ALIGNMENT)

    return _LANES_TYPE(array, types.intp), build


@intrinsic
def store(typing: Any, array: Any, index: Any, lanes: Any) -> Any:
    """Write the lanes to `array[index : index + LANES]`; nothing checks the bounds."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, signature, args), align=_ALIGNMENT)
        return context.get_dummy_value()

    return types.void(array, types.intp, _LANES_TYPE), build


@intrinsic
def splat(typing: Any, number: Any) -> Any:
    """The same number in all lanes."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = ir.Constant(_VECTOR, ir.Undefined)
        for lane in range(LANES):
            lanes = builder.insert_element(lanes, args[0], ir.Constant(ir.IntType(32), lane))
        return lanes

    return _LANES_TYPE(types.float64), build


@intrinsic
def add(typing: Any, a: Any, b: Any) -> Any:
    """`a + b` in each lane."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(*args)

    return _LANES_TYPE(_LANES_TYPE, _LANES_TYPE), build


@intrinsic
def distance(typing: Any, a: Any, b: Any) -> Any:
    """`abs(a - b)` in each lane."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR])
        absolute = cgutils.get_or_insert_function(builder.module, kind, _ABSOLUTE)
        return builder.call(absolute, [builder.fsub(*args)])

    return _LANES_TYPE(_LANES_TYPE, _LANES_TYPE), build


@intrinsic
def where_less(typing: Any, a: Any, b: Any, then: Any, otherwise: Any) -> Any:
    """`then if a < b else otherwise` in each lane."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[2], args[3])

    return _LANES_TYPE(_LANES_TYPE, _LANES_TYPE, _LANES_TYPE, _LANES_TYPE), build


@compiled
def _warp(  # noqa: PLR0917 - compiled calls are positional
    a: Array, n: int, b: Array, m: int, cost: Array, length: Array
) -> None:
    """Cost and length of the best path in each lane, left in the last row of the recurrence.

    Args:
        a: Series of n values in `LANES` lanes, value i of lane l at i * LANES + l.
        n: Rows of a.
        b: As a, with m values. A lane whose series is shorter finds its result at its own end,
            since no cell depends on what lies to its right.
        m: Rows of b.
        cost: Receives the last row of costs, laid out as b.
        length: Receives the last row of lengths.

    Two rows are computed together, the lower one a column behind, because either alone would wait
    for its own previous cell most of the time.
    """
    zero, one, infinite = splat(0.0), splat(1.0), splat(np.inf)
    x = load(a, 0)
    here, steps = zero, zero
    for j in range(m):
        here, steps = add(here, distance(x, load(b, LANES * j))), add(steps, one)
        store(cost, LANES * j, here)
        store(length, LANES * j, steps)
    i = 1
    if n % 2 == 0:
        x = load(a, LANES)
        diagonal, diagonal_steps, here, steps = infinite, zero, infinite, zero
        for j in range(m):
            above, above_steps = load(cost, LANES * j), load(length, LANES * j)
            best = where_less(above, diagonal, above, diagonal)
            best_steps = where_less(above, diagonal, above_steps, diagonal_steps)
            steps = add(where_less(here, best, steps, best_steps), one)
            here = add(where_less(here, best, here, best), distance(x, load(b, LANES * j)))
            store(cost, LANES * j, here)
            store(length, LANES * j, steps)
            diagonal, diagonal_steps = above, above_steps
        i = 2
    while i < n:
        x, y, z = load(a, LANES * i), load(a, LANES * i + LANES), load(b, 0)
        diagonal, diagonal_steps = load(cost, 0), load(length, 0)
        upper, upper_steps = add(diagonal, distance(x, z)), add(diagonal_steps, one)
        before, before_steps = infinite, zero  # the upper row, one column back
        lower, lower_steps = infinite, zero
        for j in range(1, m):
            best = where_less(upper, before, upper, before)
            best_steps = where_less(upper, before, upper_steps, before_steps)
            lower_steps = add(where_less(lower, best, lower_steps, best_steps), one)
            lower = add(where_less(lower, best, lower, best), distance(y, z))
            above, above_steps = load(cost, LANES * j), load(length, LANES * j)
            z = load(b, LANES * j)
            best = where_less(above, diagonal, above, diagonal)
            best_steps = where_less(above, diagonal, above_steps, diagonal_steps)
            before, before_steps = upper, upper_steps
            upper_steps = add(where_less(upper, best, upper_steps, best_steps), one)
            upper = add(where_less(upper, best, upper, best), distance(x, z))
            store(cost, LANES * (j - 1), lower)
            store(length, LANES * (j - 1), lower_steps)
            diagonal, diagonal_steps = above, above_steps
        best = where_less(upper, before, upper, before)
        best_steps = where_less(upper, before, upper_steps, before_steps)
        lower_steps = add(where_less(lower, best, lower_steps, best_steps), one)
        lower = add(where_less(lower, best, lower, best), distance(y, z))
        store(cost, LANES * (m - 1), lower)
        store(length, LANES * (m - 1), lower_steps)
        i += 2


@compiled
def search(  # noqa: PLR0912, PLR0915, PLR0917 - one loop; compiled calls are positional
    values: Array,
    starts: Array,
    rows: Array,
    reference_values: Array,
    reference_starts: Array,
    reference_rows: Array,
    weights: Array,
    bounds: Array,
    bound: Array,
    order: Array,
) -> Array:
    """The nearest distances of each query in a block, infinite without a finite bound.

    Args:
        values: As in `Packed`, of the queries.
        starts: The same.
        rows: The same.
        reference_values: As in `Packed`, of the references.
        reference_starts: The same.
        reference_rows: The same.
        weights: Factors of the attributes, shape (kinds of distance, attributes).
        bounds: What each attribute adds at least, unweighted, shape (attributes, queries,
            references).
        bound: Their weighted sums over attributes, shape (kinds, queries, references); infinite
            for a reference that does not count.
        order: References of each query in the order of trying, those with low bounds first.

    Returns:
        Shape (kinds, queries).
    """
    kinds = weights.shape[0]
    attributes, references = bounds.shape[0], bounds.shape[2]
    width = LANES * max(rows.max(), reference_rows.max())
    cost, length = np.zeros(width), np.zeros(width)
    a, b = np.zeros(width), np.zeros(width)
    held = np.full(LANES, -1)  # the reference in each lane
    total = np.zeros((LANES, kinds))  # its distances so far, bounds in place of what is unknown
    attribute = np.zeros(LANES, dtype=np.int64)  # the one being computed
    left = np.zeros(LANES, dtype=np.int64)  # how many are not computed
    known = np.zeros((LANES, attributes))  # what is computed, else -1
    best = np.empty(kinds)
    result = np.empty((kinds, len(rows)))
    for query in range(len(rows)):
        n, start = rows[query], starts[query]
        upcoming = 0
        best[:] = np.inf
        while True:
            running, widest = 0, 0
            for lane in range(LANES):
                if held[lane] >= 0:
                    useful = False
                    for kind in range(kinds):
                        useful = useful or total[lane, kind] * _LOWERED < best[kind]
                    if not useful:
                        held[lane] = -1
                while held[lane] < 0 and upcoming < references:
                    r = order[query, upcoming]
                    upcoming += 1
                    useful = False
                    for kind in range(kinds):
                        total[lane, kind] = bound[kind, query, r]
                        useful = useful or total[lane, kind] * _LOWERED < best[kind]
                    if useful:
                        held[lane], left[lane] = r, attributes
                        known[lane, :] = -1.0
                if held[lane] < 0:
                    continue
                r = held[lane]
                k, largest = 0, -1.0
                for j in range(attributes):
                    adds = weights[kinds - 1, j] * bounds[j, query, r]
                    if known[lane, j] < 0.0 and adds > largest:
                        k, largest = j, adds
                attribute[lane] = k
                running += 1
                m, at = reference_rows[r], reference_starts[r]
                widest = max(widest, m)
                for i in range(n):
                    a[LANES * i + lane] = values[start + k * n + i]
                for j in range(m):
                    b[LANES * j + lane] = reference_values[at + k * m + j]
            if running == 0:
                break
            _warp(a, n, b, widest, cost, length)
            for lane in range(LANES):
                r, k = held[lane], attribute[lane]
                if r < 0:
                    continue
                end = LANES * (reference_rows[r] - 1) + lane
                known[lane, k] = cost[end] / length[end]
                left[lane] -= 1
                for kind in range(kinds):
                    more = known[lane, k] - bounds[k, query, r]
                    total[lane, kind] += weights[kind, k] * more
                    if left[lane] == 0:
                        whole = 0.0
                        for j in range(attributes):
                            whole += weights[kind, j] * known[lane, j]
                        best[kind] = min(best[kind], whole)
                if left[lane] == 0:
                    held[lane] = -1
        result[:, query] = best
    return result
