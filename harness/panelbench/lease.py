"""Who works on what: a file created exclusively keeps two children off one cell."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from panelbench.record import write_new

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Lease:
    """The right to work on one key."""

    path: Path

    def release(self) -> None:
        """Give it back."""
        self.path.unlink(missing_ok=True)


def path_of(root: Path, key: str) -> Path:
    """Where the lease of a key lies in a store."""
    return root / "leases" / f"{key}.json"


def take(root: Path, key: str, *, expires: float) -> Lease | None:
    """Take the right to work on a key, or None while another living process holds it.

    Args:
        root: Of the store.
        key: Of a cell.
        expires: Seconds after which it no longer holds on other hosts.
    """
    path = path_of(root, key)
    claim = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_start": psutil.Process().create_time(),
        "until": time.time() + expires,
    }
    for _ in range(2):
        if write_new(path, json.dumps(claim)):
            return Lease(path)
        if not stale(path) or not _moved_away(path):
            return None
    return None


def _moved_away(path: Path) -> bool:
    """Remove a lease whose holder is gone, but none that another process took meanwhile."""
    aside = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    try:
        path.rename(aside)  # one process can do that
    except FileNotFoundError:
        return True
    gone = stale(aside)
    if not gone:
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    aside.unlink()
    return gone


def stale(path: Path) -> bool:
    """Whether the holder of a lease is gone."""
    try:
        claim = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except OSError:
        return False
    except ValueError:
        return True
    if not {"host", "pid", "process_start", "until"} <= set(claim):
        return True
    if claim["host"] != socket.gethostname():
        return bool(time.time() > claim["until"])
    try:
        holder = psutil.Process(claim["pid"])
        same = abs(holder.create_time() - claim["process_start"]) < 1.0  # s; clocks are adjusted
        alive = same and holder.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        alive = False
    return not alive
