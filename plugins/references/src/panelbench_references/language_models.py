"""Two ways to reach a language model: an OpenAI-compatible endpoint, a local folder."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panelbench import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

URL, MODEL, KEY = "PANELBENCH_LLM_URL", "PANELBENCH_LLM_MODEL", "PANELBENCH_LLM_KEY"
FOLDER = "PANELBENCH_LLM_FOLDER"
_LONGEST_WAIT = 60.0
_IN_A_ROW = 5  # requests that fail for good before the endpoint is given up
_AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 529)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a model draws.

    Attributes:
        temperature: As the model's makers define it.
        top_p: The same.
        max_tokens: Tokens of an answer, at most.
    """

    temperature: float
    top_p: float
    max_tokens: int


@dataclass(kw_only=True)
class Cost:
    """What asking has cost so far; counted under a lock.

    Attributes:
        requests: Requests sent, those sent again included.
        retried: Those that failed and were sent again.
        failed: Prompts that were given up.
        prompt_tokens: As the endpoint counts them.
        completion_tokens: The same.
        uncounted: Answers without a count of tokens.
        last_failure: What was wrong with the last one.
    """

    requests: int = 0
    retried: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    last_failure: str = ""


def missing(backend: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """What a backend lacks here, or None."""
    if backend == "endpoint":
        url = environment.get(URL, "")
        if not url or not environment.get(MODEL):
            return (
                f"needs a language model: set {URL} (the base address of an OpenAI-compatible "
                f"endpoint), {MODEL} and, where it wants one, {KEY}"
            )
        if not url.startswith(("http://", "https://")):
            return f"{URL} must begin with http:// or https://"
        return None
    folder = environment.get(FOLDER, "")
    if not folder or not Path(folder).is_dir():
        return f"needs a language model: set {FOLDER} to a folder with a transformers model"
    if importlib.util.find_spec("transformers") is None or not importlib.util.find_spec("torch"):
        return "needs transformers and torch; install 'panelbench-references[local]'"
    return None


class _RetryableError(Exception):
    """A request that may succeed when sent again."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A client of `POST {url}/chat/completions`; safe to use from several threads.

    Attributes:
        url: Base address.
        model: Name of the model.
        key: Sent as a bearer token where not empty; never in a message.
        sampling: How to draw.
        timeout: Seconds for one request.
        retries: How often one prompt is sent again.
        backoff: Seconds before the first of them, doubled each time; a "Retry-After" goes first.
        cost: Counts.
    """

    url: str
    model: str
    key: str = field(default="", repr=False)
    sampling: Sampling
    timeout: float
    retries: int
    backoff: float
    cost: Cost = field(default_factory=Cost)
    _lock: Any = field(default_factory=threading.Lock, repr=False)
    _row: list[str] = field(default_factory=list, repr=False)

    def ask(self, prompt: str, seed: int) -> str | None:
        """The answer to a prompt, or None where it was given up.

        Raises:
            DataError: Where the endpoint refuses the request itself (a wrong key, model or
                address), or where five prompts in a row were given up.
        """
        for attempt in range(self.retries + 1):
            if len(self._row) >= _IN_A_ROW:
                raise DataError(
                    f"The language model at {URL} failed {_IN_A_ROW} prompts in a row, each "
                    f"{self.retries + 1} times; the last time: {self._row[-1]}."
                )
            try:
                answer = self._request(prompt, seed)
            except _RetryableError as error:
                last = attempt == self.retries
                with self._lock:
                    self.cost.retried += not last
                    self.cost.last_failure = str(error)
                if last:
                    break
                wait = self.backoff * 2**attempt if error.wait is None else error.wait
                time.sleep(min(wait, _LONGEST_WAIT))
                continue
            self._row.clear()
            return answer
        with self._lock:
            self.cost.failed += 1
            self._row.append(self.cost.last_failure)
        return None

    def _request(self, prompt: str, seed: int) -> str:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "max_tokens": self.sampling.max_tokens,
            "seed": seed,
        }
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(  # noqa: S310 - `missing` allows http and https only
            f"{self.url.rstrip('/')}/chat/completions", json.dumps(body).encode(), headers
        )
        with self._lock:
            self.cost.requests += 1
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:  # noqa: S310
                raw = response.read()
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(300).decode(errors="replace").strip()
            if error.code in _AGAIN:
                raise _RetryableError(f"HTTP {error.code}", _wait(error)) from None
            shown = told.replace(self.key, "...") if self.key else told
            raise DataError(
                f"The language model at {URL} answered HTTP {error.code}: {shown or 'no reason'}."
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise _RetryableError(f"{type(error).__name__}: {error}") from None
        return self._content(raw)

    def _content(self, raw: bytes) -> str:
        try:
            answer = json.loads(raw)
            content = answer["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError):
            raise _RetryableError("an answer that is not of the expected form") from None
        if not isinstance(content, str):
            raise _RetryableError("an answer without text")
        usage = answer.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        given, drawn = usage.get("prompt_tokens"), usage.get("completion_tokens")
        with self._lock:
            if isinstance(given, int) and isinstance(drawn, int):
                self.cost.prompt_tokens += given
                self.cost.completion_tokens += drawn
            else:
                self.cost.uncounted += 1
        return content


def _wait(error: urllib.error.HTTPError) -> float | None:
    """Seconds that the server asks to wait, where it gives a number."""
    try:
        return max(float(error.headers.get("Retry-After", "")), 0.0)
    except ValueError:
        return None


class LocalModel:
    """A transformers model in a folder, on the processor, one prompt at a time."""

    def __init__(self, folder: str, sampling: Sampling) -> None:
        """Load tokenizer and weights from `folder` alone."""
        # slow to import, and torch starts threads
        import transformers  # noqa: PLC0415

        self.model = Path(folder).name
        self.sampling = sampling
        self.cost = Cost()
        self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True
        )
        self._network: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True
        )
        self._network.eval()  # type: ignore[no-untyped-call]  # torch is not typed here

    def ask(self, prompt: str, seed: int) -> str | None:
        """The answer to a prompt; the same for the same seed on the same machine."""
        import torch  # noqa: PLC0415 - see __init__

        if self._tokenizer.chat_template:
            prompt = self._tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
            )
        given = self._tokenizer(prompt, return_tensors="pt")
        length = given["input_ids"].shape[1]
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(seed)
            drawn = self._network.generate(
                input_ids=given["input_ids"],
                attention_mask=given["attention_mask"],
                max_new_tokens=self.sampling.max_tokens,
                do_sample=self.sampling.temperature > 0,
                temperature=self.sampling.temperature or None,
                top_p=self.sampling.top_p,
                top_k=0,
                pad_token_id=self._tokenizer.eos_token_id,
            )
        self.cost.requests += 1
        self.cost.prompt_tokens += length
        self.cost.completion_tokens += int(drawn.shape[1]) - length
        answer: str = self._tokenizer.decode(drawn[0, length:], skip_special_tokens=True)
        return answer
