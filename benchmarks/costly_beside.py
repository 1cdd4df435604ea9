"""A question about texts, asked of a model by ReLAQS, LOTUS and a plain sample: calls, seconds, error.

    python -m benchmarks.costly_beside DIR --lotus PYTHON [--texts 20000] [--target 0.05] [--seed 1]

"How many of these texts are negative?" DIR is that of `python -m benchmarks.costly --coverage DIR`: what
people said of a text is what the model answers. PYTHON is that of an environment with the package lotus-ai
(https://github.com/lotus-data/lotus), LOTUS of Patel et al., "Semantic Operators", arXiv 2407.11418.

A server in a process of its own speaks OpenAI's protocol. Its model `answers` is the costly one; `guesses`
knows the chances of a linear model, which is what ReLAQS takes as its proxy and LOTUS as its helper. Calls
are counted at the server. LOTUS filters rows, so it asks of each row, or of those that its helper is not sure
of; a count is what its rows are. A plain sample is as large as theory wants it for the target.
"""

from __future__ import annotations

import argparse
import http.server
import json
import math
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import relaqs
import relaqs.ai
from benchmarks.costly import FEWER, Z, labelled_texts
from benchmarks.record import circumstances, headline

ANSWER_SECONDS = 0.02
CONCURRENCY = 16
_NUMBER = re.compile(r"\[#(\d+)\]")
_QUESTION = "is negative"
_LOTUS = """
import json, sys, time
import pandas as pd
import lotus
from lotus.models import LM
from lotus.types import CascadeArgs

address, texts, seed, at_once = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
frame = pd.DataFrame({"text": json.load(open(texts))})
given = {"api_base": address, "api_key": "none", "max_batch_size": at_once}
lotus.settings.configure(
    lm=LM(model="openai/answers", **given), helper_lm=LM(model="openai/guesses", **given)
)
cascade = CascadeArgs(
    recall_target=0.9, precision_target=0.9, sampling_percentage=0.1, failure_probability=0.2,
    cascade_IS_random_seed=seed,
)
for name, arguments in (("each row", {}), ("cascade", {"cascade_args": cascade})):
    began = time.monotonic()
    found = frame.sem_filter("{text} is negative", **arguments)
    print("FOUND", json.dumps([name, len(found), time.monotonic() - began]), flush=True)
    print("NEXT", flush=True)
    sys.stdin.readline()
"""


class _Model(http.server.BaseHTTPRequestHandler):
    """Answers about a text by its number. The class has what people said, the chances, and how many asked."""

    protocol_version = "HTTP/1.1"
    is_so: list[bool]
    chances: list[float]
    asked: Counter[str]
    counting = threading.Lock()

    def do_GET(self) -> None:
        """Tell how many calls there were since the last look."""
        with self.counting:
            content = json.dumps(self.asked).encode()
            self.asked.clear()
        self._send(content)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        found = _NUMBER.search(json.dumps(request["messages"][-1]["content"]))
        assert found is not None
        with self.counting:
            self.asked[request["model"]] += 1
        time.sleep(ANSWER_SECONDS)
        self._send(json.dumps(self._reply(request, int(found[1]))).encode())

    def _reply(self, request: Mapping[str, Any], number: int) -> dict[str, Any]:
        chance = min(max(self.chances[number], 1e-6), 1 - 1e-6)
        is_so = self.is_so[number] if request["model"] == "answers" else chance > 0.5
        content = json.dumps({"answer": is_so}) if "response_format" in request else str(is_so)
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": content},
        }
        if request.get("logprobs"):
            each = {"True": math.log(chance), "False": math.log(1 - chance)}
            likely = [{"token": token, "logprob": value, "bytes": None} for token, value in each.items()]
            own = {"token": content, "logprob": each[content], "bytes": None, "top_logprobs": likely}
            choice["logprobs"] = {"content": [own]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        kind = {"object": "chat.completion", "created": 0, "model": request["model"]}
        return {"id": "0", **kind, "choices": [choice], "usage": usage}

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of a request."""


def _serve(told: Any, is_so: list[bool], chances: list[float]) -> None:
    _Model.is_so, _Model.chances, _Model.asked = is_so, chances, Counter()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Model) as server:
        server.daemon_threads = True
        told.send(server.server_address[1])
        server.serve_forever()


@contextmanager
def serving(is_so: list[bool], chances: list[float]) -> Iterator[str]:
    """Give the address of a model in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs, is_so, chances), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/v1"
    finally:
        process.kill()
        process.join()


def _calls(address: str) -> Counter[str]:
    """Return how many calls each model had since the last look."""
    with urllib.request.urlopen(address) as reply:
        return Counter(json.load(reply))


Row = tuple[str, int, int, float, float]
"""How it was asked, calls of the costly model and of the other one, seconds, and the count that was found."""


def asked_by_relaqs(address: str, texts: pa.Table, target: float, seed: int) -> Iterator[Row]:
    """Yield a row for each way: with and without a proxy to the target, and to the exact end."""
    asker = relaqs.ai._Asker("answers", address, "none", 60.0)

    def negative(text: pa.Array, guess: pa.Array) -> list[bool | None]:
        return asker.filter(text, pa.array([_QUESTION] * len(text)))

    for name, sql, goal in (
        ("to the target", f"ai_filter(text, '{_QUESTION}')", target),
        ("to the target, proxy", "negative(text, guess)", target),
        ("to the exact end", f"ai_filter(text, '{_QUESTION}')", None),
    ):
        with relaqs.connect(tables={"texts": texts}, threads=2) as db:
            relaqs.ai.register(
                db, "answers", base_url=address, api_key="none", cache=False, concurrency=CONCURRENCY
            )
            db.function("negative", negative, batch=1, concurrency=CONCURRENCY, cache=False, proxy="guess")
            began = time.monotonic()
            query = db.online_sql(f"SELECT count(*) AS n FROM texts WHERE {sql}", target=goal, seed=seed)
            found = float(query.result().fetchall()[0][0])
            seconds = time.monotonic() - began
        yield f"relaqs {name}", _calls(address)["answers"], 0, seconds, found


def asked_by_lotus(address: str, texts: pa.Table, python: str, seed: int) -> Iterator[Row]:
    """Yield a row for a filter that asks of each row, and one that asks where its helper is not sure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.json"
        path.write_text(json.dumps(texts["text"].to_pylist()))
        command = [python, "-c", _LOTUS, address, str(path), str(seed), str(CONCURRENCY)]
        quiet = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=quiet,
        ) as client:
            assert client.stdout is not None
            assert client.stdin is not None
            for line in client.stdout:
                if not line.startswith("FOUND"):
                    continue
                name, count, seconds = json.loads(line.removeprefix("FOUND"))
                calls = _calls(address)
                yield f"LOTUS, {name}", calls["answers"], calls["guesses"], seconds, float(count)
                client.stdin.write("\n")
                client.stdin.flush()


def asked_of_a_sample(address: str, texts: pa.Table, share: float, target: float, seed: int) -> Iterator[Row]:
    """Yield the row of a plain sample, one text after the other."""
    needed = (Z / target) ** 2 * (1 - share) / share
    size = math.ceil(needed / (1 + needed / texts.num_rows))
    asker = relaqs.ai._Asker("answers", address, "none", 60.0)
    ask: Callable[[str], bool] = lambda text: bool(asker._ask(_QUESTION, text, {"type": "boolean"}))  # noqa: E731
    sample = texts["text"].to_pandas().sample(size, random_state=seed)
    began = time.monotonic()
    found = float(sample.apply(ask).mean() * texts.num_rows)
    yield "df.sample(n).apply()", _calls(address)["answers"], 0, time.monotonic() - began, found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="where texts.parquet or its two packages are"
    )
    parser.add_argument("--lotus", metavar="PYTHON", help="of an environment with lotus-ai")
    parser.add_argument("--texts", type=int, default=FEWER, help="how many are asked about, default 20,000")
    parser.add_argument("--target", type=float, default=0.05, help="of the count, default 0.05")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(headline(circumstances("costly_beside", sys.argv[1:])))
    every = labelled_texts(given.folder)
    chosen = np.sort(np.random.default_rng(given.seed).permutation(every.num_rows)[: given.texts])
    every = every.take(chosen)
    numbered = [f"[#{number}] {text}" for number, text in enumerate(every["text"].to_pylist())]
    is_so, chances = every["negative"].to_pylist(), every["trained"].to_pylist()
    texts = pa.table({"text": numbered, "guess": chances})
    truth = sum(is_so)
    table = Table(title=f"how many of {len(is_so):,} texts are negative: {truth:,}")
    for name in ("asked by", "calls", "of the helper", "seconds", "found", "off by"):
        table.add_column(name, justify="left" if name == "asked by" else "right")
    with serving(is_so, chances) as address:
        rows = [*asked_by_relaqs(address, texts, given.target, given.seed)]
        rows += asked_of_a_sample(address, texts, truth / len(is_so), given.target, given.seed)
        rows += asked_by_lotus(address, texts, given.lotus, given.seed) if given.lotus else []
    for name, calls, helped, seconds, found in rows:
        off = f"{abs(found - truth) / truth:.1%}"
        table.add_row(name, f"{calls:,}", f"{helped:,}", f"{seconds:.0f}", f"{found:,.0f}", off)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
