"""The wishes that make a policy follow a schedule that is known ahead."""

from __future__ import annotations

import math

import numpy as np


def wishes(shares: np.ndarray) -> np.ndarray:
    """The u_k for which `policy.share_of` spends these shares of the budget; shape (steps,)."""
    after = np.append(np.cumsum(shares[::-1])[::-1][1:], 0.0)
    steps = len(shares)
    wish = np.zeros(steps)
    for k in range(steps - 1):
        ratio = max(shares[k], 1e-12) / max(after[k], 1e-12)
        wish[k] = math.log(ratio) + math.log(steps - 1 - k)
    return np.clip(wish, -12.0, 12.0)
