"""Private-PGM on chains: the distribution that fits noisy marginals best.

XLA compiles the fit of a chain once for each number of steps and bins: 3 s for 10 steps, 7 s for
48, on one core, and a third more with the library's default oracle. A fit itself takes 0.3 s or
2 s. So chains of similar size are padded to one shape, with a potential that leaves no mass in the
padding.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import jax
import numpy as np

from panelbench_marginals.chains import Chain

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]  # mbi warns without it
jax.config.update("jax_enable_compilation_cache", False)  # type: ignore[no-untyped-call]  # likewise

import mbi  # noqa: E402 - reads the two settings above when it is imported

# mbi fears thousands of small programs in the cache; the fit of a chain is one large program.
jax.config.update("jax_enable_compilation_cache", True)  # type: ignore[no-untyped-call]  # untyped

_DESCENT = mbi.estimation.MirrorDescent(
    marginal_oracle=mbi.marginal_oracles.message_passing_shafer_shenoy
)
SHARED_SIZE = 48
"""Chains with up to so many bins share one padded shape."""
FORBIDDEN = -1e5
"""Log potential of a padding cell; its mass is exactly 0 and so is its gradient."""


def fitted(chains: list[Chain], total: float, *, iterations: int) -> list[Chain]:
    """Fit every chain by itself, by mirror descent on the squared error of all its marginals.

    Args:
        chains: Noisy counts, all with the same noise.
        total: Number of users, 1 or more.
        iterations: Mirror descent steps; 1,000 suffice, more fit the noise.

    Returns:
        Consistent, non-negative counts that add up to `total`, in the order given.
    """
    by_size: dict[int, list[int]] = defaultdict(list)
    for index, chain in enumerate(chains):
        size = max(len(one) for one in chain.one)
        by_size[0 if size <= SHARED_SIZE else size].append(index)
    result: dict[int, Chain] = {}
    for members in by_size.values():
        bins = max(len(one) for index in members for one in chains[index].one)
        for index in members:
            result[index] = _fitted(chains[index], total, bins, iterations)
    return [result[index] for index in range(len(chains))]


def _fitted(chain: Chain, total: float, bins: int, iterations: int) -> Chain:
    steps = len(chain.one)
    names = [str(k) for k in range(steps)]
    domain = mbi.Domain(names, [bins] * steps)
    one = [_padded(count, (bins,)) for count in chain.one]
    measurements = [
        mbi.LinearMeasurement(count, (name,)) for name, count in zip(names, one, strict=True)
    ]
    cliques: list[tuple[str, ...]] = list(pairwise(names)) or [(names[0],)]
    shapes = [count.shape for count in (chain.two or chain.one)]
    if chain.two:
        measurements += [
            mbi.LinearMeasurement(_padded(count, (bins, bins)).ravel(), clique)
            for clique, count in zip(cliques, chain.two, strict=True)
        ]
    start = mbi.CliqueVector(
        domain,
        cliques,
        {
            clique: mbi.Factor(domain.project(clique), jax.numpy.asarray(_mask(shape, bins)))
            for clique, shape in zip(cliques, shapes, strict=True)
        },
    )
    model = _DESCENT.estimate(
        domain, measurements, known_total=float(total), iters=iterations, warm_start=start
    )
    pairs = [
        np.asarray(model.project(clique).datavector(flatten=False))[tuple(map(slice, shape))]
        for clique, shape in zip(cliques, shapes, strict=True)
    ]
    if not chain.two:
        return Chain(one=tuple(pairs), two=())
    firsts = [pair.sum(axis=1) for pair in pairs]
    return Chain(one=(*firsts, pairs[-1].sum(axis=0)), two=tuple(pairs))


def _padded(count: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.pad(count, [(0, full - part) for part, full in zip(count.shape, shape, strict=True)])


def _mask(shape: tuple[int, ...], bins: int) -> np.ndarray:
    mask = np.full((bins,) * len(shape), FORBIDDEN)
    mask[tuple(map(slice, shape))] = 0.0
    return mask
