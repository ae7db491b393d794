"""Torch with one thread: two on a busy machine are many times slower."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch = pytest.importorskip("torch", reason="the extra 'learnt' is not installed")
    torch.set_num_threads(1)
