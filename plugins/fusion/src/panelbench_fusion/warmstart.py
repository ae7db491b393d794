"""The schedule a policy starts from: best for the latent model among all that are fixed ahead."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import minimize

if TYPE_CHECKING:
    from panelbench_fusion.belief import Filter


def expected_errors(filter_: Filter, spend: torch.Tensor, l2_sensitivity: float) -> torch.Tensor:
    """Variance of X_k given Z_1 .. Z_k, shape (steps,), for what each step spends (q_k)."""
    belief = filter_.start(())
    gains = torch.sqrt(spend + 1e-30) / l2_sensitivity
    nothing = torch.zeros(filter_.sum_mean.shape[1], dtype=spend.dtype)
    errors = []
    for k in range(filter_.steps):
        belief, _ = filter_.update(belief, k, gains[k], nothing)
        errors.append(filter_.estimate(belief, k)[1].square())
    return torch.stack(errors)


def best_schedule(
    filter_: Filter, total: float, l2_sensitivity: float, *, iterations: int
) -> np.ndarray:
    """Shares of the budget, shape (steps,), that minimise the model's mean squared error.

    A convex program (the variance is convex in q); softmax shares and L-BFGS from the uniform ones.
    """

    def objective(logits: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.as_tensor(logits).requires_grad_()
        errors = expected_errors(filter_, torch.softmax(free, 0) * total, l2_sensitivity)
        loss = errors.mean()
        (slope,) = torch.autograd.grad(loss, free)
        return float(loss.detach()), slope.numpy()

    start = np.zeros(filter_.steps)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    shares = np.exp(found.x - found.x.max())
    return np.asarray(shares / shares.sum())


def wishes(shares: np.ndarray) -> np.ndarray:
    """The u_k for which `policy.share_of` spends these shares of the budget; shape (steps,)."""
    after = np.append(np.cumsum(shares[::-1])[::-1][1:], 0.0)
    steps = len(shares)
    wish = np.zeros(steps)
    for k in range(steps - 1):
        ratio = max(shares[k], 1e-12) / max(after[k], 1e-12)
        wish[k] = math.log(ratio) + math.log(steps - 1 - k)
    return np.clip(wish, -12.0, 12.0)
