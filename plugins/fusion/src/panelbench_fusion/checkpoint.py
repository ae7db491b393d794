"""Training that was killed goes on where it was; training that is done is not done again.

Kept where the harness says (PANELBENCH_CACHE), under a hash of all that training depends on:
training and validation windows, whose people are not protected, parameters, budget, seeds, the
source of this package and the libraries. Test windows never enter. Anything that cannot be read as
it was written is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VARIABLE = "PANELBENCH_CACHE"


class Stateful(Protocol):
    """What can be put down and taken up again, such as a network or an optimizer."""

    def state_dict(self) -> dict[str, Any]:
        """All of it, as tensors and plain values."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Take it up."""
        ...


class Dice:
    """A torch generator as a `Stateful`."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        """Its state."""
        return {"state": self._generator.get_state()}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Go back to a state."""
        self._generator.set_state(state_dict["state"])


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
            digest, content = path.read_bytes()[:32], path.read_bytes()[32:]
        except OSError:
            return None
        if hashlib.sha256(content).digest() != digest:
            _say(f"{path.name} is damaged and ignored")
            return None
        found: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
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
            _say(f"cannot keep {path.name}: {error}")
            with contextlib.suppress(OSError):
                part.unlink()


NOWHERE = Shelf()
"""Keeps nothing."""


class Checkpoint:
    """Parts of one training that go on together.

    Args:
        shelf: Where they lie.
        name: Of this training.
        parts: Everything that training changes, its generator included.
    """

    def __init__(self, shelf: Shelf, name: str, parts: Mapping[str, Stateful]) -> None:
        self._shelf, self._name, self._parts = shelf, name, parts

    def resume(self) -> int:
        """Take up the last state; how many updates it has, 0 where there is none."""
        found = self._shelf.load(self._name)
        if found is None:
            return 0
        for name, part in self._parts.items():
            part.load_state_dict(found["parts"][name])
        done = int(found["done"])
        _say(f"{self._name} goes on from update {done}")
        return done

    def keep(self, done: int) -> None:
        """Put down the present state, after so many updates."""
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        self._shelf.save(self._name, {"done": done, "parts": parts})


def shelf_for(arrays: Iterable[np.ndarray], *facts: object) -> Shelf:
    """The shelf in the folder that the harness names, or `NOWHERE`.

    Args:
        arrays: What is trained on.
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
    return Shelf(folder=Path(folder) / "fusion", key=digest.hexdigest()[:32])


@cache
def _source() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)  # noqa: T201 - goes to the cell's log
