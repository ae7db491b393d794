"""The part of `path` that needs torch: a model is loaded, tuned with DP-SGD, and writes tables."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import numpy as np
import torch

from panelbench import DataError
from panelbench_path import lora, models
from panelbench_path.checkpoint import shelf_for
from panelbench_path.dpsgd import Plan, train
from panelbench_path.examples import Examples, drawn_lengths, pool_of_lengths
from panelbench_path.generate import Writer
from panelbench_path.grammar import Grammar
from panelbench_path.likelihood import losses
from panelbench_path.progress import to_stderr
from panelbench_path.vocabulary import Pieces

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from panelbench_path.path import Path
    from panelbench_path.serialise import Form

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""What gets an adapter."""


def tuned_tables(
    settings: Path,
    form: Form,
    real: list[np.ndarray],
    *,
    lengths: np.ndarray,
    estimated: float,
    length_stddev: float,
    stddev: float,
    total: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Codes of tables that the tuned model wrote.

    Args:
        settings: The mechanism.
        form: Of the tables.
        real: Codes of the private tables.
        lengths: The released histogram of lengths.
        estimated: The released number of users.
        length_stddev: Of the noise of that histogram.
        stddev: Of the noise on the sum of clipped gradients; 0 for none, and no clipping.
        total: How many to write.
        rng: The only source of randomness.

    Raises:
        DataError: Where the model cannot be loaded or its texts do not fit.
    """
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1") or "1"))
    model, tokens = models.load(settings.model, dtype=settings.dtype)
    pieces = Pieces.of(form, tokens)
    models.check_text(form, pieces, tokens)
    models.prune(model, pieces.ids)
    grammar = Grammar.of(pieces, min_rows=form.schema.min_rows)
    _check_context(pieces, settings.context)
    if torch.cuda.is_available():
        model.to(torch.device("cuda"))  # type: ignore[arg-type]  # the library hides its type
    tune(
        settings,
        model,
        form,
        grammar,
        real,
        lengths=lengths,
        estimated=estimated,
        stddev=stddev,
        rng=rng,
    )
    writer = Writer(
        model=model,
        form=form,
        tokens=tokens,
        grammar=grammar,
        context=settings.context,
        constrained=settings.constrained,
        temperature=settings.temperature,
        top_p=settings.top_p,
        static=settings.static,
    )
    rows = None
    if settings.constrained and settings.ends == "lengths":
        least = form.schema.min_rows
        rows = drawn_lengths(lengths, length_stddev, least=least, count=total, rng=rng)
        rows.sort()  # tables of like length are written together
    tables = writer.write(total, batch=settings.written, rng=rng, say=to_stderr, lengths=rows)
    return [tables[place] for place in rng.permutation(len(tables))]


def _check_context(pieces: Pieces, context: int) -> None:
    row = sum(
        len(name) + max(len(v) for v in values)
        for name, values in zip(pieces.names, pieces.later, strict=True)
    )
    needed = len(pieces.header) + len(pieces.rows[-1]) + row
    if 2 * needed > context:
        raise DataError(
            f"The header and a row take {needed} tokens, more than half of the context of "
            f"{context}; give context = {4 * needed} or more."
        )


def tune(
    settings: Path,
    model: PreTrainedModel,
    form: Form,
    grammar: Grammar,
    real: list[np.ndarray],
    *,
    lengths: np.ndarray,
    estimated: float,
    stddev: float,
    rng: np.random.Generator,
) -> None:
    """Train adapters with DP-SGD and fold them in, in place; arguments as in `tuned_tables`."""
    most = form.schema.max_rows
    weights = pool_of_lengths(lengths, least=form.schema.min_rows, most=most)
    examples = Examples(
        tables=real,
        grammar=grammar,
        start=settings.start,
        pool=weights if settings.pool == "lengths" else np.ones(most),
        target=settings.target,
        context=settings.context,
        within=settings.constrained and settings.ends == "lengths",
        device=str(model.device),
    )
    layers = lora.attach(
        model,
        rank=settings.rank,
        alpha=2.0 * settings.rank,
        seed=int(rng.integers(2**31)),
        wanted=lambda name: name.rpartition(".")[2] in PROJECTIONS,
    )
    plan = Plan(
        users=len(real),
        denominator=estimated,
        sampling=settings.probability(form.schema),
        steps=settings.steps,
        clip=settings.clip if stddev else math.inf,
        stddev=stddev,
        rate=settings.rate,
        micro=settings.micro,
    )
    train(
        model,
        layers,
        examples.batches_of,
        losses,
        plan,
        rng=rng,
        engine=settings.engine,
        shelf=shelf_for(real, settings, plan, lengths, rng.bit_generator.state),
        name="path",
    )
    lora.merge(model)
