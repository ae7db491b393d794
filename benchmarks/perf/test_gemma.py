"""Gemma 3 270M's cell of synthesis_gemma.toml, and the loss on unseen users around its tuning.

Run with `pytest benchmarks/perf/test_gemma.py -s`: an hour of a core and 8 GB. It needs the model
file that plugins/path/README.md names. PANELBENCH_STORE names a store to keep the record in, where
`panelbench run benchmarks/synthesis_gemma.toml --store` finds it done.
"""

from __future__ import annotations

import os
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from panelbench import cli, worker
from panelbench_path import tuning
from panelbench_path.examples import Examples
from panelbench_path.likelihood import losses

GRID = Path(__file__).parents[1] / "synthesis_gemma.toml"
USERS = 200


def gemma_alone(folder):
    """A grid file with the first mechanism only, under the same name; its cell has the same key."""
    head, first, *others = GRID.read_text(encoding="utf-8").split("[[mechanisms]]\n")
    metrics = others[-1][others[-1].index("[[metrics]]") :]
    grid = folder / GRID.name
    grid.write_text(f"{head}[[mechanisms]]\n{first}{metrics}", encoding="utf-8")
    return grid


def mean_loss(settings, model, form, grammar, tables):
    """Mean over users of nats a token: all rows of each, as many as fit, from the header alone."""
    real = form.encode(tables)[:USERS]
    examples = Examples(
        tables=real, grammar=grammar, start=1.0, pool=np.ones(form.schema.max_rows),
        target="rest", context=settings.context, within=True, device=str(model.device),
    )  # fmt: skip
    batches = examples.batches_of(np.arange(len(real)), 8, np.random.default_rng(0))
    with torch.no_grad():
        return float(torch.cat([losses(model, batch) for batch in batches]).mean())


def test_loss_before_and_after(tmp_path, monkeypatch):
    """Prints; the loss must fall."""
    settings = tomllib.loads(GRID.read_text(encoding="utf-8"))["mechanisms"][0]["params"]
    if not Path(settings["model"]).expanduser().is_file():
        pytest.skip(f"needs {settings['model']}")
    seen, found = {}, {}
    load, tune = worker.Task.dataset, tuning.tune

    def dataset(task, key):
        seen["data"] = load(task, key)
        return seen["data"]

    def measured(settings, model, form, grammar, real, **rest):
        def loss():
            return mean_loss(settings, model, form, grammar, seen["data"].test)

        found["before"], began = loss(), time.perf_counter()
        print(f"\nloss before {found['before']:.4f} nats a token, {USERS} unseen users", flush=True)
        tune(settings, model, form, grammar, real, **rest)
        seconds = time.perf_counter() - began
        found["after"] = loss()
        print(f"\nloss after {found['after']:.4f}, tuned for {seconds:.0f} s", flush=True)

    monkeypatch.setattr(worker.Task, "dataset", dataset)
    monkeypatch.setattr(tuning, "tune", measured)
    store = os.environ.get("PANELBENCH_STORE", str(tmp_path / "store"))
    assert cli.main(["run", str(gemma_alone(tmp_path)), "--store", store, "--inline"]) == 0
    assert found["after"] < found["before"]
