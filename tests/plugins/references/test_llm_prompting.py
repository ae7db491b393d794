"""A language model behind a real server on the loopback interface, well behaved and not."""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from panelbench import Budget, DataError, Established, Role
from panelbench.testing import examine_component, tiny_tables, tiny_visits
from panelbench_references.llm_prompting import LlmPrompting
from panelbench_references.text import write

UNLIMITED = Budget.unlimited()
TABLES = tiny_tables()


def table(dataset, number=0):
    """One test user's table, as a model might write it."""
    user = dataset.test["user"].unique()[number]
    return write(dataset.test[dataset.test["user"] == user], dataset.schema)


class Server(ThreadingHTTPServer):
    """Answers request n by `script(n, body)`: (status, headers, bytes), after it has slept."""

    daemon_threads = True

    def __init__(self, script):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.seen, self.lock = script, [], threading.Lock()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.seen)
            self.server.seen.append((self.path, dict(self.headers), body))
        status, headers, raw = self.server.script(number, body)
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)
        except OSError:  # the client has given up
            self.close_connection = True

    def log_message(self, *args):
        """Stay quiet."""


def well(text, *, usage=True):
    answer = {"choices": [{"message": {"role": "assistant", "content": text}}]}
    if usage:
        answer["usage"] = {"prompt_tokens": 100, "completion_tokens": 20}
    return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()


@pytest.fixture
def serve(monkeypatch):
    """Start a server that follows a script, and point the mechanism at it."""
    servers = []

    def start(script):
        server = Server(script)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        monkeypatch.setenv("PANELBENCH_LLM_URL", f"http://127.0.0.1:{server.server_port}/v1/")
        monkeypatch.setenv("PANELBENCH_LLM_MODEL", "small")
        monkeypatch.setenv("PANELBENCH_LLM_KEY", "secret")
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(dataset=TABLES, **fields):
    options = {"tables": 6, "backoff": 0.0, "timeout": 5.0, **fields}
    return LlmPrompting(**options).release(
        dataset.for_mechanism(), UNLIMITED, rng=np.random.default_rng(0)
    )


@pytest.mark.parametrize("k", [0, 1, 5, 10])
def test_each_prompt_shows_k_real_tables(serve, k):
    server = serve(lambda n, body: well(table(TABLES, n)))
    release = ask(k=k, parallel=1)
    assert release.frame["user"].nunique() == 6
    train = {write(t, TABLES.schema) for _, t in TABLES.train.groupby("user")}
    prompts = [body["messages"][0]["content"] for _, _, body in server.seen]
    assert [sum(t in p for t in train) for p in prompts] == [k] * 6
    assert len(set(prompts)) == (6 if k else 1)
    assert len({body["seed"] for _, _, body in server.seen}) == 6


def test_the_request_is_that_of_the_common_interface(serve):
    server = serve(lambda n, body: well(table(TABLES)))
    ask(tables=1, temperature=0.3, top_p=0.8, max_tokens=77)
    path, headers, body = server.seen[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    body.pop("messages")
    body.pop("seed")
    assert body == {"model": "small", "temperature": 0.3, "top_p": 0.8, "max_tokens": 77}


def test_the_release_has_the_tables_and_the_cost(serve):
    serve(lambda n, body: well(table(TABLES, n)))
    release = ask()
    assert release.guarantee.established is Established.NONE
    rows = len(release.frame)
    assert release.info == {
        "model": "small",
        "tables": 6,
        "asked": 6,
        "rows_generated": rows,
        "rows_accepted": rows,
        "requests": 6,
        "prompt_tokens": 600,
        "completion_tokens": 120,
    }


def test_irregular_times_come_from_the_model(serve):
    visits = tiny_visits()
    serve(lambda n, body: well(table(visits, 3)))
    release = ask(visits, tables=1)
    user = visits.test["user"].unique()[3]
    expected = visits.test[visits.test["user"] == user]
    assert release.frame["time"].tolist() == expected["time"].tolist()
    assert release.frame["kind"].tolist() == expected["kind"].tolist()


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ((429, {"Retry-After": "0"}, b"slow down"), "HTTP 429"),
        ((503, {}, b""), "HTTP 503"),
        ((200, {}, b'{"choices": [{"mess'), "not of the expected form"),
        ((200, {}, b'{"choices": []}'), "not of the expected form"),
        ((200, {}, b'{"choices": [{"message": {"content": null}}]}'), "without text"),
    ],
)
def test_trouble_that_passes_is_waited_out(serve, trouble, said):
    serve(lambda n, body: trouble if n % 2 == 0 else well(table(TABLES, n)))
    release = ask(parallel=1)
    assert release.frame["user"].nunique() == 6
    assert (release.info["requests"], release.info["retried"]) == (12, 6)
    assert said in release.info["last_failure"]
    assert "failed" not in release.info


def test_a_server_that_asks_for_time_is_given_it(serve, monkeypatch):
    serve(lambda n, body: (429, {"Retry-After": "7"}, b"") if n == 0 else well(table(TABLES)))
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    ask(tables=1, parallel=1)
    assert 7.0 in slept


def test_waits_double(serve, monkeypatch):
    serve(lambda n, body: (500, {}, b"") if n < 3 else well(table(TABLES)))
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    ask(tables=1, parallel=1, backoff=0.5)
    assert [s for s in slept if s in {0.5, 1.0, 2.0, 4.0}] == [0.5, 1.0, 2.0]


def test_a_slow_answer_is_asked_for_again(serve):
    hurried = threading.Event()

    def script(n, body):
        if n == 0:
            hurried.wait(5.0)
        return well(table(TABLES))

    serve(script)
    release = ask(tables=1, timeout=0.3)
    hurried.set()
    assert release.info["retried"] == 1
    assert "Timeout" in release.info["last_failure"] or "timed out" in release.info["last_failure"]


def test_a_server_that_never_answers_well_is_given_up_soon(serve):
    server = serve(lambda n, body: (500, {}, b""))
    with pytest.raises(DataError, match=r"failed 5 prompts in a row, each 3 times.*HTTP 500"):
        ask(tables=1000, retries=2, parallel=1)
    assert len(server.seen) == 15


def test_a_refused_key_stops_at_once_and_is_not_repeated(serve):
    server = serve(lambda n, body: (401, {}, b"no such key: secret"))
    with pytest.raises(DataError, match=r"HTTP 401: no such key: \.\.\.") as caught:
        ask(parallel=1)
    assert "secret" not in str(caught.value)
    assert len(server.seen) == 1


def test_no_server_at_all_is_said(monkeypatch):
    monkeypatch.setenv("PANELBENCH_LLM_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("PANELBENCH_LLM_MODEL", "small")
    with pytest.raises(DataError, match=r"failed 5 prompts in a row.*refused"):
        ask(parallel=1, retries=0)


def test_text_that_is_no_table_is_counted_and_asked_for_again(serve):
    serve(lambda n, body: well("I am sorry." if n % 3 == 0 else table(TABLES, n)))
    release = ask(parallel=1)
    assert release.frame["user"].nunique() == release.info["tables"] == 6
    assert release.info["asked"] > 6


def test_fewer_tables_than_asked_for_are_a_release(serve):
    serve(lambda n, body: well("I am sorry." if n else table(TABLES)))
    release = ask(parallel=1, rounds=2)
    assert (release.info["tables"], release.info["asked"]) == (1, 11)


def test_no_table_at_all_is_an_error(serve):
    serve(lambda n, body: well("I am sorry."))
    with pytest.raises(DataError, match="no usable table in 18 tries: its answers were not"):
        ask()


def test_a_short_table_does_not_count_and_its_rows_are_rejected(serve):
    short = "\n".join(table(TABLES).splitlines()[:3])
    serve(lambda n, body: well(short if n == 0 else table(TABLES)))
    release = ask(tables=1, parallel=1)
    assert release.info["rows_generated"] - release.info["rows_accepted"] == 2


def test_answers_without_a_count_of_tokens_are_counted(serve):
    serve(lambda n, body: well(table(TABLES), usage=False))
    assert ask(tables=2).info["uncounted"] == 2


def test_the_order_of_answers_does_not_matter(serve):
    def script(n, body):
        time.sleep(0.02 * (n % 3))
        return well(table(TABLES, body["seed"] % 60))

    serve(script)
    first, again = ask(parallel=4), ask(parallel=1)
    assert first.frame.equals(again.frame)


@pytest.fixture
def offline(monkeypatch):
    for name in ("URL", "MODEL", "KEY", "FOLDER"):
        monkeypatch.delenv(f"PANELBENCH_LLM_{name}", raising=False)


def test_without_an_endpoint_it_is_unsupported_and_says_what_to_set(offline, monkeypatch):
    mechanism = LlmPrompting()
    assert mechanism.role is Role.REFERENCE
    said = mechanism.supports(TABLES.schema, UNLIMITED)
    assert said.startswith("needs a language model: set PANELBENCH_LLM_URL")
    assert "PANELBENCH_LLM_FOLDER" in LlmPrompting(backend="local").supports(TABLES.schema, None)
    monkeypatch.setenv("PANELBENCH_LLM_URL", "file:///etc/passwd")
    monkeypatch.setenv("PANELBENCH_LLM_MODEL", "small")
    assert "http://" in mechanism.supports(TABLES.schema, UNLIMITED)


def test_it_passes_the_exam_without_an_endpoint(offline):
    assert [str(f) for f in examine_component(LlmPrompting) if not f.passed] == []


def test_it_passes_the_exam_with_one(serve):
    serve(lambda n, body: well(table(TABLES, body["seed"] % 60)))
    assert [f.why for f in examine_component(LlmPrompting) if not f.passed] == []


def test_the_local_model_needs_its_extra(offline, monkeypatch, tmp_path):
    monkeypatch.setenv("PANELBENCH_LLM_FOLDER", str(tmp_path))
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = LlmPrompting(backend="local").supports(TABLES.schema, UNLIMITED)
    assert said == "needs transformers and torch; install 'panelbench-references[local]'"


def test_a_local_model_answers_the_same_for_the_same_seed(monkeypatch, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("torch")
    from panelbench_references.language_models import LocalModel, Sampling  # noqa: PLC0415

    end, space = "[End]", " "
    words = {chr(code): code - 32 for code in range(32, 127)} | {end: 95}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=space))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model)
    tokenizer.add_special_tokens({"eos_token": end})
    tokenizer.save_pretrained(tmp_path)
    config = transformers.GPT2Config(
        vocab_size=96, n_positions=256, n_embd=16, n_layer=1, n_head=2, eos_token_id=95
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    sampling = Sampling(temperature=1.0, top_p=0.9, max_tokens=30)
    local = LocalModel(str(tmp_path), sampling)
    first, again, other = local.ask("Columns", 1), local.ask("Columns", 1), local.ask("Columns", 2)
    assert first == again != other
    assert local.cost.requests == 3
    assert 0 < local.cost.completion_tokens <= 90
    assert local.cost.prompt_tokens == 21


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"backend": "cloud"}, "one of endpoint, local, got 'cloud'"),
        ({"k": -1}, "k must be at least 0"),
        ({"tables": 0}, "tables must be at least 1"),
        ({"top_p": 0.0}, "0 < top_p <= 1"),
        ({"timeout": 0.0}, "timeout > 0"),
    ],
)
def test_fields_out_of_range_are_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        LlmPrompting(**fields)
