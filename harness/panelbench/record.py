"""Records and the store: one JSON file a cell and a score, written once, never overwritten.

Layout of a store, all names in [a-z0-9._-]:

    datasets/<content hash>/    arrays and description of a materialised dataset
    sources/<source key>.json   which content hash a source gave
    releases/<release hash>/    arrays, description and guarantee of a release
    records/<cell key>-<attempt>.json
    scores/<score key>-<attempt>.json
    audits/<audit key>-<attempt>.json
    plans/<grid>.json           what the grid planned when it last ran
    logs/, leases/              what children printed; who works on what
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from panelbench.errors import StoreError
from panelbench.grid import KEY_LENGTH, canonical, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA_VERSION = 1
_FILE = re.compile(rf"([0-9a-f]{{{KEY_LENGTH}}})-(\d+)\.json")


class Status(StrEnum):
    """How a cell, or a score, ended."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OOM = "oom"
    KILLED = "killed"
    INVALID = "invalid"


FAILURES = frozenset({Status.FAILED, Status.TIMEOUT, Status.OOM, Status.KILLED, Status.INVALID})
"""Statuses that make `run` exit with 3; unsupported and skipped are answers, not failures."""


class Phase(StrEnum):
    """What a child was doing."""

    LOAD = "load"
    RELEASE = "release"
    SCORE = "score"
    WRITE = "write"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What became of one cell, of one metric on one release, or of one audit.

    Attributes:
        key: Key of the cell or the score; with `attempt`, the file name.
        attempt: From 1; a retry adds one and keeps the old file.
        what: "cell", "score" or "audit".
        subject: For a cell its public part and "hashes"; for a score "release", "metric", "code",
            "stream"; for an audit "mechanism", "budget", "game", "seed", "hashes".
        status: How it ended.
        phase: Where it ended, for a status other than ok.
        error: Last line of the error, or the reason; empty for ok.
        log: Path of the log below the store.
        release: Hash of the release, for an ok cell.
        guarantee: The guarantee as the mechanism stated it, and "figures" as settled.
        budget_figures: The budget in every notion.
        scores: For an ok score, one entry a component.
        info: What the mechanism tells about the release, and the loader's repairs; for an audit
            what was "found", in counts, "epsilon_lower" and the "reason" that speaks against the
            claim, if any.
        seconds: Wall-clock seconds inside the child, by phase.
        peak_mb: Peak resident memory of the child, MiB.
        versions: Versions of the plugin, its requirements and Python.
        hardware: Host, machine, cores, limits, workers: recorded, not keyed.
        started: UTC, ISO 8601.
        schema_version: Of this layout.
    """

    key: str
    attempt: int
    what: str
    subject: dict[str, Any]
    status: Status
    phase: str = ""
    error: str = ""
    log: str = ""
    release: str = ""
    guarantee: dict[str, Any] = field(default_factory=dict)
    budget_figures: dict[str, Any] = field(default_factory=dict)
    scores: list[dict[str, Any]] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    peak_mb: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    started: str = ""
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """Stable text with a digest; infinities are written as the strings "inf" and "-inf"."""
        raw = _finite(dataclasses.asdict(self))
        return json.dumps({**raw, "digest": digest_of(raw)}, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`.

        Raises:
            StoreError: For a record of a newer version, or one that is no record.
        """
        try:
            raw = json.loads(text)
            version = raw.get("schema_version")
        except (ValueError, AttributeError) as error:
            raise StoreError(f"it is not a JSON record ({error})") from error
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise StoreError(
                f"it has record version {version}, this Panelbench reads up to {SCHEMA_VERSION}; "
                f"upgrade Panelbench"
            )
        raw.pop("digest", None)  # `verify` checks it
        try:
            return cls(**{**raw, "status": Status(raw["status"])})
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"it is not a complete record ({error})") from error


OF_THE_PLACE = {"log": "", "hardware": {}, "versions": {}}
"""What of a record names a machine; it is left out of digests and of published archives."""


def digest_of(raw: dict[str, Any]) -> str:
    """A hash of what a record says, as JSON, whatever machine it comes from."""
    kept = {name: value for name, value in raw.items() if name not in (*OF_THE_PLACE, "digest")}
    return hashlib.sha256(canonical(kept).encode()).hexdigest()[:KEY_LENGTH]


def altered(raw: dict[str, Any]) -> str:
    """What is wrong with a record, as JSON, that is not as it was written; or nothing."""
    what = f"{raw.get('what')} {raw.get('key')}"
    if raw.get("digest", digest_of(raw)) != digest_of(raw):
        return f"{what} was altered after it was written: its digest does not fit."
    if key_of(raw.get("subject")) != raw.get("key"):
        return f"{what} has the key of something else."
    return ""


def _finite(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def write_new(path: Path, text: str) -> bool:
    """Write a file atomically, once: False if it was there already, and then it is untouched.

    The text is flushed to disk under a temporary name, and the final name is linked to it, so a
    reader sees all of it or nothing, and two writers cannot both win.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
    finally:
        Path(temporary).unlink(missing_ok=True)
    return True


def write_over(path: Path, content: str | bytes) -> None:
    """Write a file that may change (a plan, a CSV) so that a reader sees the old or the new.

    Raises:
        StoreError: Where it cannot be written; what was there stays.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise StoreError(
            f"'{path}' cannot be written: {error.strerror or error}; name another place."
        ) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one sentence where something of a store cannot be written, and why."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"'{path}' could not be written: {error.strerror or error}; free some space or choose "
            f"another --store and run the same command again."
        ) from error


def one_line(text: str) -> str:
    """An error message as one line of a readable length, without what moves a terminal's cursor."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= 500 else f"{words[:480]} ... (see the log)"


def content_hash(arrays: dict[str, Any], meta: dict[str, Any]) -> str:
    """What contiguous arrays and their description are kept under."""
    digest = hashlib.sha256(canonical([sorted(arrays), _finite(meta)]).encode())
    for _, array in sorted(arrays.items()):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:KEY_LENGTH]


class Store:
    """A folder of records, releases and materialised datasets."""

    def __init__(self, root: Path) -> None:
        self.root = root

    # ---------------------------------------------------------------- records

    def _folder(self, what: str) -> Path:
        return self.root / {"cell": "records", "score": "scores", "audit": "audits"}[what]

    def add(self, record: Record) -> bool:
        """Write a record; False if that attempt was recorded already (the old one stays)."""
        path = self._folder(record.what) / f"{record.key}-{record.attempt}.json"
        with writing(path):
            return write_new(path, record.to_json())

    def latest(self, what: str, key: str) -> Record | None:
        """The newest attempt under a key, or None."""
        found = None
        attempt = 1
        while (path := self._folder(what) / f"{key}-{attempt}.json").exists():
            found = path
            attempt += 1
        return None if found is None else read_record(found)

    def records(self, what: str) -> Iterator[Record]:
        """The newest attempt of every key, in the order of the keys.

        Raises:
            StoreError: Naming the first file that is not a record.
        """
        newest: dict[str, tuple[int, Path]] = {}
        folder = self._folder(what)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            match = _FILE.fullmatch(path.name)
            if match and int(match[2]) > newest.get(match[1], (0, path))[0]:
                newest[match[1]] = int(match[2]), path
        for _, path in newest.values():
            yield read_record(path)

    # ---------------------------------------------------------------- arrays

    def put(self, kind: str, arrays: dict[str, Any], meta: dict[str, Any]) -> str:
        """Keep named arrays and their description under the hash of both; return the hash."""
        import numpy as np  # noqa: PLC0415 - `list` and `status` never need it

        names = sorted(arrays)
        plain = [np.ascontiguousarray(arrays[name]) for name in names]
        key = content_hash(dict(zip(names, plain, strict=True)), meta)
        target = self.root / kind / key
        if target.is_dir():
            return key
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix="."))
        try:
            for index, array in enumerate(plain):
                np.save(temporary / f"{index}.npy", array, allow_pickle=False)
            text = json.dumps({"names": names, "meta": _finite(meta)})
            (temporary / "meta.json").write_text(text, encoding="utf-8")
            temporary.chmod(0o755)
            temporary.rename(target)
        except OSError:
            if not target.is_dir():  # another child may have kept the same content meanwhile
                with writing(target):
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return key

    def get(self, kind: str, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arrays and the description kept under a hash; arrays are read-only maps."""
        import numpy as np  # noqa: PLC0415 - `list` and `status` never need it

        folder = self.root / kind / key
        try:
            kept = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            arrays = {
                name: np.load(folder / f"{index}.npy", mmap_mode="r", allow_pickle=False)
                for index, name in enumerate(kept["names"])
            }
        except (OSError, ValueError) as error:
            raise StoreError(f"'{folder}' is missing or damaged: {error}") from error
        return arrays, kept["meta"]

    def intact(self, kind: str, key: str) -> bool:
        """Whether everything kept under a hash is there."""
        folder = self.root / kind / key
        try:
            names = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["names"]
        except (OSError, ValueError, KeyError):
            return False
        return all((folder / f"{index}.npy").is_file() for index in range(len(names)))

    def drop(self, kind: str, key: str) -> None:
        """Remove what is left under a hash, so that it can be kept anew."""
        shutil.rmtree(self.root / kind / key, ignore_errors=True)

    def meta(self, kind: str, key: str) -> dict[str, Any] | None:
        """The description kept under a hash, or None."""
        try:
            text = (self.root / kind / key / "meta.json").read_text(encoding="utf-8")
            kept: dict[str, Any] = json.loads(text)["meta"]
        except (OSError, ValueError):
            return None
        return kept


def read_record(path: Path) -> Record:
    """Read one record file.

    Raises:
        StoreError: Naming the file and what is wrong.
    """
    try:
        return Record.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"The record '{path}' cannot be read: {error.strerror}.") from error
    except (StoreError, UnicodeDecodeError) as error:
        raise StoreError(
            f"The record '{path}' cannot be used: {error}; move it away and run the grid again."
        ) from error
