"""How long DP-SGD takes beside ordinary training of the same model, and generation.

Run with `make perf`. Times are processor time of one thread.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from panelbench import Column, ColumnKind, PrivacyUnit, Schema
from panelbench_path import models
from panelbench_path.batches import as_cells, loss_by_table
from panelbench_path.dpsgd import Plan, train
from panelbench_path.drawn_cells import generate
from panelbench_path.generate import Writer
from panelbench_path.grammar import Grammar
from panelbench_path.layout import BINS, FIRST_BIN, SLOTS, VOCABULARY, neighbors
from panelbench_path.lora import attach
from panelbench_path.path import Path
from panelbench_path.serialise import Form
from panelbench_path.vocabulary import Pieces
from panelbench_path.weights import load

USERS, ROWS, COLUMNS, STEPS = 128, 12, 6, 4
LEAST_SHARE = 0.8
LEAST_ROWS_PER_SECOND = 500


def bias():
    found = np.full((SLOTS, VOCABULARY), -np.inf)
    found[:COLUMNS, FIRST_BIN : FIRST_BIN + BINS] = -np.log(BINS)
    return found


def batches_of(users, micro, _rng):
    for first in range(0, len(users), micro):
        yield cells_of(users[first : first + micro])


def cells_of(users):
    tokens = FIRST_BIN + np.random.default_rng(0).integers(0, BINS, (USERS, ROWS, COLUMNS))
    rows = np.full(len(users), ROWS)
    return as_cells(neighbors(tokens[users], rows, starts=rows * 0, window=ROWS))


def private():
    model = load()
    layers = attach(model, rank=4, alpha=8.0, seed=0)
    added = torch.from_numpy(bias()).float()
    plan = Plan(
        users=USERS,
        denominator=USERS,
        sampling=1.0,
        steps=STEPS,
        clip=0.1,
        stddev=0.1,
        rate=0.01,
    )
    train(
        model,
        layers,
        batches_of,
        lambda net, cells: loss_by_table(net, cells, added),
        plan,
        rng=np.random.default_rng(0),
        say=lambda _: None,
    )


def ordinary():
    model = load()
    layers = attach(model, rank=4, alpha=8.0, seed=0)
    added = torch.from_numpy(bias()).float()
    model.requires_grad_(requires_grad=False)
    for layer in layers:
        layer.weight.requires_grad_()
    optimiser = torch.optim.Adam([layer.weight for layer in layers], lr=0.01)
    for _ in range(STEPS):
        optimiser.zero_grad()
        for first in range(0, USERS, 64):
            cells = cells_of(np.arange(first, first + 64))
            (loss_by_table(model, cells, added).sum() / USERS).backward()
        optimiser.step()


def seconds(work):
    began = time.process_time()
    work()
    return time.process_time() - began


def test_training_is_nearly_as_fast_with_privacy_as_without(benchmark):
    torch.set_num_threads(1)
    ordinary()  # what is imported and set up once
    pairs = [(seconds(ordinary), seconds(private)) for _ in range(3)]
    benchmark.pedantic(private, rounds=1)
    share = float(np.median([plain / own for plain, own in pairs]))
    tokens = USERS * ROWS * COLUMNS * STEPS
    benchmark.extra_info["share"] = share
    benchmark.extra_info["tokens/s"] = [round(tokens / own) for _, own in pairs]
    assert share >= LEAST_SHARE


@pytest.mark.benchmark(timer=time.process_time)
def test_generation_draws_rows_fast_enough(benchmark):
    torch.set_num_threads(1)
    model, rows = load(), np.full(256, ROWS)

    def draw():
        generate(
            model,
            bias(),
            rows,
            columns=COLUMNS,
            clock=False,
            cells=144,
            rng=np.random.default_rng(0),
            say=lambda _: None,
        )

    benchmark.pedantic(draw, rounds=1)
    speed = rows.sum() / benchmark.stats["min"]
    benchmark.extra_info["rows/s"] = speed
    assert speed >= LEAST_ROWS_PER_SECOND


@pytest.mark.benchmark(timer=time.process_time)
def test_text_is_written_row_by_row_fast_enough(benchmark):
    """The default cell of `path`: 500 tables of ten rows, three numbers and a category."""
    torch.set_num_threads(1)
    numbers = (Column(name=name, lower=-12.0, upper=12.0) for name in "abc")
    kind = Column(name="kind", kind=ColumnKind.CATEGORICAL, categories=("up", "down"))
    schema = Schema(columns=(*numbers, kind), unit=PrivacyUnit.USER, min_rows=10, max_rows=10)
    form = Form.of(schema)
    model, tokens = models.load("", dtype="float32")
    pieces = Pieces.of(form, tokens)
    models.prune(model, pieces.ids)
    writer = Writer(
        model=model,
        form=form,
        tokens=tokens,
        grammar=Grammar.of(pieces, min_rows=10),
        context=Path().context,
        constrained=True,
        temperature=1.0,
        top_p=1.0,
        static=(),
    )
    rows = np.full(500, 10)

    def write():
        rng = np.random.default_rng(0)
        writer.write(500, batch=Path().written, rng=rng, say=lambda _: None, lengths=rows)

    benchmark.pedantic(write, rounds=1)
    speed = rows.sum() / benchmark.stats["min"]
    benchmark.extra_info["rows/s"] = speed
    print("rows/s", round(speed))
    assert speed >= LEAST_ROWS_PER_SECOND
