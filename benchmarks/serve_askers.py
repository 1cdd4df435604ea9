"""A process that asks `benchmarks.serve_load`'s questions, in many threads: of a server, or of a session.

It takes one order after the other through a pipe, and says for each what became of the questions.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import psycopg
import pyarrow as pa
from relaqs_engine.layouts.manifest import SOON_SECONDS
from relaqs_tpch.exact import difference

import relaqs
from benchmarks.first_questions import TPCH as QUESTIONS
from benchmarks.server_process import Running

EXACT, TARGET = "exact", "±5 %"
KINDS = (EXACT, TARGET)
RIGHT, ESTIMATED, WRONG, ERROR, LOST = "right", "estimated", "wrong", "errors", "lost"
VERDICTS = (RIGHT, ESTIMATED, WRONG, ERROR, LOST)
GOOD = (RIGHT, ESTIMATED)
ANSWER_SECONDS = 120.0  # after the end of an order; what is not answered by then is lost

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of one question. seconds: until its answer was there."""

    kind: str
    seconds: float
    verdict: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """So many askers ask for so long, each at most so many questions."""

    askers: int
    seconds: float
    questions: int


class Asker(Protocol):
    """Asks one question after another."""

    def prepare(self, kind: str) -> None:
        """Let the next answer be of this kind."""

    def rows(self, sql: str) -> Rows:
        """Return the answer."""

    def is_lost(self) -> bool:
        """Return whether the connection is gone."""


class Door(Protocol):
    """A way to answers."""

    def opened(self) -> AbstractContextManager[Callable[[int], Asker]]:
        """Give what makes the asker of a number, to a block."""


class EmbeddedAsker:
    """Asks a session of its own process."""

    def __init__(self, session: relaqs.Session) -> None:
        self._session = session
        self._kind = EXACT

    def prepare(self, kind: str) -> None:
        self._kind = kind

    def rows(self, sql: str) -> Rows:
        is_estimated = self._kind == TARGET
        options = relaqs.QueryOptions(target=0.05 if is_estimated else None)
        # Without error bars where the answer must be exact: so the server asks, too.
        answer = self._session.submit(sql, options, intervals=is_estimated).result().estimate
        return list(zip(*(column.to_pylist() for column in answer.columns), strict=True))

    def is_lost(self) -> bool:
        return False


class ServerAsker:
    """Asks over one connection, and opens another one when that is lost."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def prepare(self, kind: str) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._address, autocommit=True)
        self._connection.execute("SET relaqs.target = '5%'" if kind == TARGET else "SET relaqs.target = off")

    def rows(self, sql: str) -> Rows:
        assert self._connection is not None
        return self._connection.execute(sql).fetchall()

    def is_lost(self) -> bool:
        return self._connection is None or self._connection.closed

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


@dataclass(frozen=True, slots=True)
class EmbeddedDoor:
    """One session in the process that asks. Like a server it runs a short query once, exactly."""

    warehouse: Path
    threads: int

    @contextmanager
    def opened(self) -> Iterator[Callable[[int], Asker]]:
        with relaqs.connect(
            self.warehouse, threads=self.threads, exact_below_seconds=SOON_SECONDS
        ) as session:
            yield lambda number: EmbeddedAsker(session)


@dataclass(frozen=True, slots=True)
class ServerDoor:
    """A server. Each asker is a user with one connection, which stays. addresses: of the askers."""

    addresses: tuple[str, ...]

    @classmethod
    def of(cls, server: Running, askers: int) -> ServerDoor:
        return cls(tuple(server.address(f"user-{number}") for number in range(askers)))

    @contextmanager
    def opened(self) -> Iterator[Callable[[int], Asker]]:
        askers = [ServerAsker(address) for address in self.addresses]
        try:
            yield askers.__getitem__
        finally:
            for each in askers:
                each.close()


class AskingProcess:
    """The process as its parent sees it. A context manager.

    truths: DuckDB's answers to the questions.
    """

    def __init__(self, door: Door, truths: Sequence[pa.Table]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, door, truths), daemon=True)

    def take(self, order: Order) -> list[Asked]:
        """Return what became of all questions of an order."""
        self._pipe.send(order)
        answer: list[Asked] = self._pipe.recv()
        return answer

    def __enter__(self) -> AskingProcess:
        self._process.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._pipe.send(None)
            self._process.join(ANSWER_SECONDS)
        self._process.kill()


def _serve(pipe: Connection, door: Door, truths: Sequence[pa.Table]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    with door.opened() as asker:
        while (order := pipe.recv()) is not None:
            pipe.send(_carried_out(order, asker, truths))


def _carried_out(order: Order, asker: Callable[[int], Asker], truths: Sequence[pa.Table]) -> list[Asked]:
    found: list[Asked] = []
    until = time.monotonic() + order.seconds
    threads = [
        threading.Thread(target=_ask, args=(asker(number), number, order, until, truths, found), daemon=True)
        for number in range(order.askers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until + ANSWER_SECONDS - time.monotonic(), 0.0))
    hung = Asked(EXACT, ANSWER_SECONDS, LOST, f"no answer after {ANSWER_SECONDS:g} s")
    return found + [hung for thread in threads if thread.is_alive()]


def _ask(
    asker: Asker, first: int, order: Order, until: float, truths: Sequence[pa.Table], found: list[Asked]
) -> None:
    """Ask the list again and again, each question in both kinds. first: where in the list to begin."""
    for asked in range(order.questions):
        if time.monotonic() >= until:
            return
        question = (first + asked // len(KINDS)) % len(QUESTIONS)
        found.append(_answered(asker, question, KINDS[asked % len(KINDS)], truths[question]))


def _answered(asker: Asker, question: int, kind: str, truth: pa.Table) -> Asked:
    started = time.perf_counter()
    try:
        asker.prepare(kind)
        started = time.perf_counter()
        rows = asker.rows(QUESTIONS[question])
        seconds = time.perf_counter() - started
    except Exception as error:
        verdict = LOST if asker.is_lost() else ERROR
        said = f"question {question}: {type(error).__name__}: {error}"
        return Asked(kind, time.perf_counter() - started, verdict, said)
    if kind == TARGET:
        return Asked(kind, seconds, ESTIMATED)
    wrong = _difference(truth, rows)
    return Asked(kind, seconds, RIGHT if wrong is None else WRONG, f"question {question}: {wrong}")


def _difference(truth: pa.Table, rows: Rows) -> str | None:
    columns = list(zip(*rows, strict=True)) if rows else [()] * truth.num_columns
    try:
        arrays = [pa.array(values, type_) for values, type_ in zip(columns, truth.schema.types, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
        return f"its values are of other types than DuckDB's: {error}"
    return difference(truth, pa.Table.from_arrays(arrays, truth.column_names))
