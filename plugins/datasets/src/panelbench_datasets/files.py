"""Reading other people's files: every fault ends in one clear sentence or in a counted repair.

Rows are counted from 1, without the header. Names of columns are compared without regard to case,
spaces and underscores, so "Created Date" and "created_date" are the same column.
"""

from __future__ import annotations

import difflib
import hashlib
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from panelbench import DataError, DataFile, data_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pandas.api.extensions import ExtensionArray

    from panelbench import Column

CHUNK = 1 << 20
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
THOUSANDS = r"^[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?$"


@dataclass
class Repairs:
    """What a loader repaired or left out, counted by name; the order is that of the checks."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, count: float | np.integer[Any]) -> None:
        """Add `count` to the repair called `name`, which is listed even when it is 0."""
        self.counts[name] = self.counts.get(name, 0) + int(count)


def locate(file: DataFile) -> Path:
    """The path of `file` below the data directory, once it is known to be the right file.

    Raises:
        DataError: Where it is missing, empty, or its sha256 is another one.
    """
    path = data_directory() / file.path
    if not path.exists():
        raise DataError(
            f"File '{file.path}' is not in the data directory '{data_directory()}'. "
            f"{file.instructions}"
        )
    if path.is_dir():
        return path
    if not path.stat().st_size:
        raise DataError(f"File '{file.path}' is empty; fetch it again. {file.instructions}")
    if file.sha256 is not None:
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while block := stream.read(CHUNK):
                digest.update(block)
        if digest.hexdigest() != file.sha256:
            raise DataError(
                f"File '{file.path}' has the sha256 {digest.hexdigest()}, expected {file.sha256}; "
                f"fetch it again. {file.instructions}"
            )
    return path


def plain(name: str) -> str:
    """A column name as it is compared: lower case, no spaces or underscores."""
    return name.strip().lstrip("\ufeff").lower().replace(" ", "").replace("_", "")


def match_columns(
    header: Sequence[str], required: Iterable[str], optional: Iterable[str] = (), *, file: str
) -> dict[str, str]:
    """Map the file's names to ours for the columns that we read.

    Raises:
        DataError: Where a required column is missing, naming the nearest one there is.
    """
    there = {plain(name): name for name in header}
    found: dict[str, str] = {}
    for name in required:
        if plain(name) not in there:
            near = difflib.get_close_matches(plain(name), there, n=1, cutoff=0.6)
            hint = f"; the nearest is '{there[near[0]]}'" if near else ""
            raise DataError(
                f"File '{file}' has no column '{name}'{hint}. "
                f"It has: {', '.join(map(str, header))}."
            )
        found[there[plain(name)]] = name
    for name in optional:
        if plain(name) in there:
            found[there[plain(name)]] = name
    return found


def damaged(file: str, error: Exception) -> DataError:
    """The sentence about a file that a library could not read."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if file.endswith(".gz") and isinstance(error, OSError | EOFError | zlib.error):
        return DataError(
            f"File '{file}' is a truncated or damaged gzip file ({reason}); fetch it again."
        )
    return DataError(f"File '{file}' cannot be read: {reason}; fetch it again or mend it.")


READ_ERRORS = (EOFError, zlib.error, OSError, UnicodeDecodeError, pa.ArrowInvalid)


def read_csv(
    source: Path | pa.BufferReader, columns: Sequence[str], *, names: Sequence[str] | None = None
) -> pd.DataFrame:
    """Some columns of a CSV file as text; a row with too few or too many values is an error.

    Args:
        source: A path, decompressed by its suffix, or bytes.
        columns: Which columns, by their names in the file.
        names: The names of all columns, where the file has no header.
    """
    stream = source if isinstance(source, pa.BufferReader) else pa.input_stream(str(source))
    with stream:
        table = csv.read_csv(
            stream,
            read_options=csv.ReadOptions(column_names=list(names) if names else None),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                include_columns=list(columns),
                column_types=dict.fromkeys(columns, pa.string()),
            ),
        )
    frame: pd.DataFrame = table.to_pandas()
    return frame


def csv_header(path: Path) -> list[str]:
    """The names in the first line of a CSV file."""
    with pa.input_stream(str(path)) as stream, csv.open_csv(stream) as reader:
        names: list[str] = reader.schema.names
        return names


def read_table(
    path: Path, required: Iterable[str], optional: Iterable[str] = (), *, file: str
) -> pd.DataFrame:
    """Read the named columns of a CSV, gzip CSV or Parquet file under our names.

    CSV values stay text, for `numbers` and `times` to convert with the row in their messages.
    Optional columns that are not there are left out.

    Raises:
        DataError: On a damaged file, a missing column, or a file without rows.
    """
    parquet = path.suffix == ".parquet"
    try:
        header = pq.read_schema(path).names if parquet else csv_header(path)
        names = match_columns(header, required, optional, file=file)
        if parquet:
            frame = pq.read_table(path, columns=list(names)).to_pandas()
        else:
            frame = read_csv(path, list(names))
    except READ_ERRORS as error:
        raise damaged(file, error) from error
    if not len(frame):
        raise DataError(f"File '{file}' has a header but no rows; expected rows.")
    renamed: pd.DataFrame = frame.rename(columns=names)
    return renamed


def is_missing(values: pd.Series) -> np.ndarray:
    """True where a value is absent or one of the usual spellings of absence."""
    absent = values.isna()
    if not pd.api.types.is_numeric_dtype(values.dtype):
        absent = absent | values.astype(str).str.strip().str.lower().isin(MISSING)
    result: np.ndarray = absent.to_numpy(dtype=bool)
    return result


def distinct(values: pd.Series) -> tuple[pd.Series, np.ndarray]:
    """The distinct values of a long column and the position of each row's among them.

    Few words, many rows: rules about words are applied to each distinct one once.
    """
    codes, words = pd.factorize(values, use_na_sentinel=False)
    return pd.Series(words), codes


def coded(words: pd.Series, codes: np.ndarray, categories: Sequence[str]) -> ExtensionArray:
    """The rows of a categorical column, from what `distinct` gave and each word's category."""
    positions = pd.Index(categories).get_indexer(pd.Index(words))[codes]
    return pd.Categorical.from_codes(positions.tolist(), categories=pd.Index(categories))


def numbers(frame: pd.DataFrame, column: str, *, file: str, required: bool = False) -> np.ndarray:
    """A column as float64, NaN where missing; thousands commas are understood.

    Raises:
        DataError: On a value that is no number or infinite, and on a missing one where `required`.
    """
    values = frame[column]
    result = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, copy=True)
    unread = np.isnan(result)
    if unread.any():
        words = values[unread]
        absent = np.zeros(len(result), dtype=bool)
        absent[unread] = is_missing(words)
        if not pd.api.types.is_numeric_dtype(values.dtype):
            text = words.astype(str).str.strip()
            plain_text = text.where(~text.str.match(THOUSANDS), text.str.replace(",", ""))
            result[unread] = pd.to_numeric(plain_text, errors="coerce").to_numpy()
        unread = np.isnan(result)
        if (unread & ~absent).any():
            bad = unread & ~absent
            raise at_row(frame, column, bad, file=file, expected="a finite number")
        if required and absent.any():
            expected = "a number, not a missing value"
            raise at_row(frame, column, absent, file=file, expected=expected)
    if np.isinf(result).any():
        raise at_row(frame, column, np.isinf(result), file=file, expected="a finite number")
    return result


def identifiers(frame: pd.DataFrame, column: str, *, file: str) -> np.ndarray:
    """A required column of whole numbers as int64.

    Raises:
        DataError: On a missing or fractional value, or one too large to be exact.
    """
    result = numbers(frame, column, file=file, required=True)
    bad = (result != np.floor(result)) | (np.abs(result) > 2**53)
    if bad.any():
        raise at_row(frame, column, bad, file=file, expected="a whole number")
    return result.astype(np.int64)


def times(frame: pd.DataFrame, column: str, *, formats: Sequence[str], file: str) -> pd.Series:
    """A required column of dates and times, in the first of `formats` that fits its first row.

    Raises:
        DataError: On a missing value or one in another format.
    """
    text = frame[column].astype(str).str.strip()
    layout = next(
        (f for f in formats if pd.notna(pd.to_datetime(text.iloc[0], format=f, errors="coerce"))),
        formats[0],
    )
    result = pd.to_datetime(text, format=layout, errors="coerce")
    bad = result.isna().to_numpy()
    if bad.any():
        raise at_row(frame, column, bad, file=file, expected=f"a time like {layout}")
    return result


def in_range(values: np.ndarray, *, column: Column, repairs: Repairs) -> np.ndarray:
    """`values` with NaN in place of those outside the column's bounds, which are counted."""
    outside = np.zeros(values.shape, dtype=bool)
    if column.lower is not None:
        outside |= values < column.lower
    if column.upper is not None:
        outside |= values > column.upper
    repairs.add(f"{column.name}: out of range, now missing", outside.sum())
    return np.where(outside, np.nan, values)


def without_duplicates(
    frame: pd.DataFrame, keys: Sequence[str], repairs: Repairs, *, what: str = "duplicated rows"
) -> pd.DataFrame:
    """The first row for each value of `keys`; the others are counted."""
    again = frame.duplicated(list(keys))
    repairs.add(what, again.sum())
    return frame[~again]


def in_time_order(frame: pd.DataFrame, user: str, time: str, repairs: Repairs) -> pd.DataFrame:
    """Rows sorted by user and time; rows that came before their predecessor are counted."""
    grouped = frame.groupby(user, sort=False)[time]
    backwards = frame[time] < grouped.shift(1)
    repairs.add("rows with time running backwards, sorted", backwards.sum())
    return frame.sort_values([user, time], kind="stable", ignore_index=True)


def at_row(
    frame: pd.DataFrame, column: str, bad: np.ndarray, *, file: str, expected: str
) -> DataError:
    """The sentence about the first row where `bad` holds."""
    position = int(np.argmax(bad))
    row = int(frame.index[position]) + 1
    more = f" ({int(bad.sum()) - 1} more rows like it)" if bad.sum() > 1 else ""
    return DataError(
        f"File '{file}', column '{column}', row {row}: expected {expected}, "
        f"got {str(frame[column].iloc[position])!r}{more}."
    )
