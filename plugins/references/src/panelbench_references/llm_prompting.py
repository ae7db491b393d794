"""Tables that a language model writes when asked, with real examples or without."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from panelbench import (
    USER_TABLES,
    DataError,
    Established,
    Guarantee,
    Mechanism,
    Role,
    SyntheticTables,
    UserTables,
)
from panelbench_references.language_models import (
    FOLDER,
    KEY,
    MODEL,
    URL,
    Endpoint,
    LocalModel,
    Sampling,
    missing,
)
from panelbench_references.prompts import prompt
from panelbench_references.text import TIME, Row, read, write

if TYPE_CHECKING:
    from panelbench import Budget, Dataset, Schema

BACKENDS = ("endpoint", "local")


@dataclass(frozen=True, kw_only=True)
class LlmPrompting(Mechanism):
    """A language model is given the schema and `k` real training tables and writes a new one.

    One prompt a table, each with its own `k` examples drawn without replacement (Rosenblatt et al.
    2026, arXiv:2602.02766, with Gemini). Its text is read row by row, with fallbacks; a table ends
    at the first row that cannot be read and counts where it has the schema's `min_rows` by then.
    Prompts are tried up to `rounds` times the number of tables wanted; where some are still
    missing, the release has fewer.

    `backend = "endpoint"` posts to `PANELBENCH_LLM_URL`/chat/completions, any OpenAI-compatible
    server, as the model `PANELBENCH_LLM_MODEL` with the key `PANELBENCH_LLM_KEY`; what is busy,
    slow or garbled is asked again. `backend = "local"` loads the transformers model in the folder
    `PANELBENCH_LLM_FOLDER`. These are not part of a cell's key: after a change of model, run the
    cells again or give the entry another `label`. The model that wrote a release, its tokens,
    failures and rejected rows are in `info`.

    Formal guarantee:
        None. With k > 0 real tables leave the machine for an endpoint and may come back.

    Attributes:
        k: Example tables in a prompt; 0 for the schema alone.
        tables: How many tables to ask for.
        backend: "endpoint" or "local".
        temperature: How freely the model draws.
        top_p: It draws among the most likely tokens of this total probability.
        max_tokens: Tokens of an answer, at most.
        rounds: How often a missing table is asked for, at most.
        parallel: Requests under way at a time, for an endpoint.
        timeout: Seconds for one request.
        retries: How often a request that failed is sent again.
        backoff: Seconds before the first of them, doubled each time.
    """

    name: ClassVar[str] = "llm-prompting"
    kind: ClassVar[str] = USER_TABLES
    role: ClassVar[Role] = Role.REFERENCE

    k: int = 5
    tables: int = 100
    backend: str = "endpoint"
    temperature: float = 0.7
    top_p: float = 0.9
    max_tokens: int = 2048
    rounds: int = 3
    parallel: int = 4
    timeout: float = 120.0
    retries: int = 4
    backoff: float = 1.0

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got '{self.backend}'.")
        least = {"k": 0, "retries": 0, "tables": 1, "max_tokens": 1, "rounds": 1, "parallel": 1}
        for name, lowest in least.items():
            if getattr(self, name) < lowest:
                raise ValueError(f"{name} must be at least {lowest}, got {getattr(self, name)}.")
        if not (self.temperature >= 0 and 0 < self.top_p <= 1):
            raise ValueError(
                f"Give temperature >= 0 and 0 < top_p <= 1, got {self.temperature}, {self.top_p}."
            )
        if not (self.timeout > 0 and self.backoff >= 0):
            raise ValueError(
                f"Give timeout > 0 and backoff >= 0, got {self.timeout}, {self.backoff}."
            )

    def supports(self, schema: Schema, budget: Budget) -> str | None:  # noqa: ARG002 - any will do
        """Needs a model to be within reach."""
        return missing(self.backend)

    def release(
        self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator
    ) -> SyntheticTables:
        """Ask for the tables.

        Raises:
            DataError: Where there are fewer than `k` training users, no model, or no table that
                could be read.
        """
        if not isinstance(dataset, UserTables):
            raise DataError(f"llm-prompting needs user tables, got {dataset.kind}.")
        lacking = missing(self.backend)
        if lacking:
            raise DataError(f"llm-prompting {lacking}.")
        users = dataset.train["user"].unique()
        if len(users) < self.k:
            raise DataError(f"llm-prompting shows {self.k} tables, and there are {len(users)}.")
        model = self._model()
        written, accepted, asked = 0, 0, 0
        found: list[list[Row]] = []
        for _ in range(self.rounds):
            wanted = self.tables - len(found)
            if not wanted:
                break
            prompts = [self._prompt(dataset, users, rng) for _ in range(wanted)]
            seeds = rng.integers(2**31, size=wanted).tolist()
            asked += wanted
            for answer in self._answers(model, prompts, seeds):
                if answer is None:
                    continue
                parsed = read(answer, dataset.schema)
                written += parsed.written
                if len(parsed.rows) >= dataset.schema.min_rows:
                    accepted += len(parsed.rows)
                    found.append(parsed.rows)
        if not found:
            why = model.cost.last_failure or "its answers were not in the form asked for"
            raise DataError(f"The language model gave no usable table in {asked} tries: {why}.")
        cost = {name: count for name, count in asdict(model.cost).items() if count}
        return SyntheticTables(
            schema=dataset.schema,
            frame=_frame(found, dataset.schema),
            guarantee=Guarantee(
                established=Established.NONE,
                unit=dataset.schema.unit,
                relation=budget.relation,
                note=f"Not private: {self.k} real tables are shown to the model in each prompt.",
            ),
            info={
                "model": model.model,
                "tables": len(found),
                "asked": asked,
                "rows_generated": written,
                "rows_accepted": accepted,
                **cost,
            },
        )

    def _model(self) -> Endpoint | LocalModel:
        sampling = Sampling(
            temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens
        )
        if self.backend == "local":
            return LocalModel(os.environ[FOLDER], sampling)
        return Endpoint(
            url=os.environ[URL],
            model=os.environ[MODEL],
            key=os.environ.get(KEY, ""),
            sampling=sampling,
            timeout=self.timeout,
            retries=self.retries,
            backoff=self.backoff,
        )

    def _prompt(self, dataset: UserTables, users: np.ndarray, rng: np.random.Generator) -> str:
        owners = dataset.train["user"].to_numpy()  # sorted
        shown = rng.choice(users, size=self.k, replace=False)
        first, last = (np.searchsorted(owners, shown, side=side) for side in ("left", "right"))
        tables = [dataset.train.iloc[a:b] for a, b in zip(first, last, strict=True)]
        return prompt(dataset.schema, [write(table, dataset.schema) for table in tables])

    def _answers(
        self, model: Endpoint | LocalModel, prompts: list[str], seeds: list[int]
    ) -> list[str | None]:
        """The answers in the order of the prompts."""
        if isinstance(model, LocalModel) or self.parallel == 1:
            return [model.ask(p, s) for p, s in zip(prompts, seeds, strict=True)]
        with ThreadPoolExecutor(self.parallel) as pool:
            return list(pool.map(model.ask, prompts, seeds))


def _frame(tables: list[list[Row]], schema: Schema) -> pd.DataFrame:
    rows = [row for table in tables for row in table]
    lengths = [len(table) for table in tables]
    places = np.concatenate([np.arange(n, dtype=np.float64) for n in lengths])
    data: dict[str, object] = {
        "user": np.repeat(np.arange(len(tables)), lengths),
        "time": places if schema.regular else [row[TIME] for row in rows],
    }
    for column in schema.columns:
        values = [row[column.name] for row in rows]
        data[column.name] = (
            pd.Series(values, dtype=object)
            if column.categories
            else np.array([np.nan if v is None else v for v in values], dtype=np.float64)
        )
    return pd.DataFrame(data)
