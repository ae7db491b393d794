"""Windows whose statistics are known."""

import numpy as np
import pytest

from panelbench_fusion.estimator import Windows

STEPS = 20


@pytest.fixture
def windows():
    """Random walks from a random level, counted with a second coordinate."""
    rng = np.random.default_rng(1)
    start = rng.normal(60, 10, (60, 1))
    count = start + np.cumsum(rng.normal(0, 1, (60, STEPS)), axis=1)
    return Windows(state=count / 0.4, sums=np.stack([count, 0.3 * count + start], axis=-1))
