from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture
def rng():
    return np.random.default_rng(20260301)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data directory."""
    monkeypatch.setenv("PANELBENCH_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def real_data(monkeypatch):
    """The directory of real samples; tests that need one of its files skip without it."""
    there = Path(os.environ.get("PANELBENCH_DATA", SHARED))

    def need(path):
        if not (there / path).exists():
            pytest.skip(f"the real sample {path} is not below PANELBENCH_DATA or ../shared/data")
        monkeypatch.setenv("PANELBENCH_DATA", str(there))
        return there / path

    return need
