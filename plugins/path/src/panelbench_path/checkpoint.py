"""Training that was killed goes on where it was.

Kept where the harness says (PANELBENCH_CACHE), under a hash of all that training depends on. A
checkpoint holds private data (weights before they are released, the generator that makes noise)
and belongs to the machine that runs the cell, like the data. What cannot be read as it was written
is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from panelbench_path.progress import to_stderr

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIABLE = "PANELBENCH_CACHE"


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """Where the checkpoints of one training lie.

    Attributes:
        folder: None to keep nothing.
        key: Hash of what training depends on.
    """

    folder: Path | None = None
    key: str = ""

    def _path(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{self.key}-{name}.pt"

    def load(self, name: str) -> dict[str, Any] | None:
        """What was saved under a name, or None; a damaged file is as good as none."""
        path = self._path(name)
        if path is None:
            return None
        try:
            whole = path.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(whole[32:]).digest() != whole[:32]:
            to_stderr(f"{path.name} is damaged and ignored")
            return None
        found: dict[str, Any] = torch.load(io.BytesIO(whole[32:]), weights_only=True)
        return found

    def save(self, name: str, what: dict[str, Any]) -> None:
        """Save under a name, at once or not at all; a full disk does not end training."""
        path = self._path(name)
        if path is None:
            return
        buffer = io.BytesIO()
        torch.save(what, buffer)
        content = buffer.getvalue()
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(hashlib.sha256(content).digest() + content)
            part.replace(path)
        except OSError as error:
            to_stderr(f"cannot keep {path.name}: {error}")
            with contextlib.suppress(OSError):
                part.unlink()


NOWHERE = Shelf()
"""Keeps nothing."""


def shelf_for(arrays: Iterable[np.ndarray], *facts: object) -> Shelf:
    """The shelf in the folder that the harness names, or `NOWHERE`.

    Args:
        arrays: What is trained on, and the state of the generator if it is not among the facts.
        facts: All else that training depends on, with a `repr` that says it all.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return NOWHERE
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    own = (_source(), torch.__version__, np.__version__, torch.get_num_threads())
    digest.update(repr((facts, own)).encode())
    return Shelf(folder=Path(folder) / "path", key=digest.hexdigest()[:32])


@cache
def _source() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
