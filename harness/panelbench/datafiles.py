"""The files that datasets read: which are there, where they belong, how to get them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panelbench import catalog
from panelbench.errors import DataError, unknown
from panelbench.schema import DATA_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from panelbench.loader import Plugin


def directory() -> Path | None:
    """The folder that `--data` or the environment names, or None."""
    named = os.environ.get(DATA_DIRECTORY)
    return Path(named).expanduser() if named else None


def sha256_of(path: Path) -> str:
    """Hash of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def find(file: dict[str, Any]) -> Path | None:
    """Where a file is, or None."""
    folder = directory()
    path = None if folder is None else folder / file["path"]
    return path if path is not None and path.is_file() else None


def listing(plugins: dict[str, Plugin], name: str | None) -> list[dict[str, Any]]:
    """Every file of every dataset (or of one), with its state: found, missing or altered.

    Raises:
        DataError: For a dataset that no plugin brings.
    """
    found: list[dict[str, Any]] = []
    known: list[str] = []
    for owner, answer in catalog.ask_all(plugins.values()).items():
        for component in answer.components:
            if component["component"] != "dataset":
                continue
            full = f"{owner}/{component['name']}"
            known.append(full)
            if name in (None, full, component["name"]):
                found.extend(_look(full, file) for file in component["files"])
    if name is not None and not any(name in (full, full.split("/", 1)[1]) for full in known):
        raise DataError(unknown("dataset", name, known))
    return found


def _look(dataset: str, file: dict[str, Any]) -> dict[str, Any]:
    path = find(file)
    folder = directory()
    where = str((folder or Path(f"${DATA_DIRECTORY}")) / file["path"])
    if path is None:
        state = "missing"
    else:
        right = file["sha256"] in (None, sha256_of(path))
        state = "found" if right else "altered"
    return {"dataset": dataset, "state": state, "where": where, **file}


def get(files: Iterable[dict[str, Any]], *, say: Callable[[str], None]) -> int:
    """Fetch what can be fetched and say how to get the rest; 1 if a required file is still missing.

    Raises:
        DataError: Where no data directory is named, or a download is not what it should be.
    """
    folder = directory()
    if folder is None:
        raise DataError(f"Name the data directory: pass --data FOLDER or set {DATA_DIRECTORY}.")
    missing = 0
    for file in files:
        target = folder / file["path"]
        if file["state"] == "found":
            say(f"{file['path']}: there already")
        elif file["url"]:
            fetch(file["url"], target, file["sha256"])
            say(f"{file['path']}: fetched")
        else:
            say(f"{file['path']}: {file['state']}; put it at {target}. {file['instructions']}")
            missing += file["required"]
    return 1 if missing else 0


def fetch(url: str, target: Path, sha256: str | None) -> None:
    """Download once, however many processes ask; the file appears whole and checked, or not.

    Raises:
        DataError: Where the download fails or its hash is wrong.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_file() and sha256 in (None, sha256_of(target)):
            return
        handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".part")
        try:
            with (
                os.fdopen(handle, "wb") as stream,
                urllib.request.urlopen(url, timeout=60) as answer,  # noqa: S310 - a plugin names it
            ):
                while block := answer.read(1 << 20):
                    stream.write(block)
            found = sha256_of(Path(temporary))
            if sha256 not in (None, found):
                raise DataError(
                    f"'{url}' gave a file with the hash {found}, expected {sha256}; the download "
                    f"was cut short or the file was replaced. Try again or fetch it by hand."
                )
            Path(temporary).replace(target)
        except OSError as error:
            raise DataError(f"'{url}' could not be fetched: {error}. Try again.") from error
        finally:
            Path(temporary).unlink(missing_ok=True)
