"""CostlyFunction: a function of the user's own that a query calls, and how it may be called.

A function gets Arrow arrays, one for each argument, with the rows of one batch. It returns as many answers:

    def complains(text: pa.Array) -> list[bool]:
        return [model.asks("Is this a complaint?", each.as_py()) for each in text]

    db.function("complains", complains, batch=32, concurrency=8, cost=0.002)

What a *prediction* is worth is measured (`relaqs_bootstrap.regression`), so a cheap and bad one does no harm.

Rows are asked in batches, several at once, and each answer is kept as soon as it is there. A batch that fails
is asked again after a pause that doubles, and ends the query when it has failed too often. All that was
answered before is in the cache by then. The cache is an SQLite file with one table, `answers`: what was asked
of which function in which version, and the answer, both as JSON. Several processes may share it.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import math
import re
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pyarrow as pa
from relaqs_engine.errors import RelaqsError, SqlError
from relaqs_engine.rewrite.costly_calls import columns_of

from relaqs.arguments import ArgumentError, check_budget, check_count, is_number, refusal
from relaqs.jobs.job import Metered
from relaqs.python_values import python_values

TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}
_NAME = re.compile(r"[a-z_][a-z0-9_]*$")
AnswerFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class CostlyFunction:
    """A function that queries may call. `Session.function` describes the arguments, and makes one.

    Attributes:
        name: in SQL, in small letters.
        fn: gives the answers of a batch.
        returns: the type of an answer: bool, int, float or str.
        batch: how many rows a call of `fn` has at most.
        concurrency: how many batches are asked at once.
        cost: of one row, in any currency.
        retries: how often a batch is asked again after an error.
        rate: rows a second at most, over all queries; inf: as many as there are.
        bounds: between which an answer lies, where it is a number.
        proxy: what an answer is expected to be: SQL over the names of the function's arguments, or a function
            like `fn`; None: nothing is expected.
        version: answers of another version are not used again.
        cache: where answers are kept.
        parameters: the names of the arguments, where they are known.
    """

    name: str
    fn: AnswerFunction
    returns: type = bool
    batch: int = 32
    concurrency: int = 8
    cost: float = 0.0
    retries: int = 2
    rate: float = math.inf
    bounds: tuple[float, float] | None = None
    proxy: str | AnswerFunction | None = None
    version: str = ""
    cache: Path | None = None
    parameters: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            raise refusal("name", self.name, 'a name of small letters, digits and _, such as "complains"')
        if not callable(self.fn):
            raise refusal("fn", self.fn, "a function that takes Arrow arrays and returns as many answers")
        if self.returns not in TYPES:
            raise refusal("returns", self.returns, "bool, int, float or str")
        check_count("batch", self.batch)
        check_count("concurrency", self.concurrency)
        if not is_number(self.cost) or not 0 <= self.cost < math.inf:
            raise refusal("cost", self.cost, "what one row costs, such as 0.002, or 0")
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise refusal("retries", self.retries, "a whole number from 0 on")
        if not self.rate > 0:
            raise refusal("rate", self.rate, "a number of rows a second above 0, or None")
        if self.bounds is not None and (self.returns not in (int, float) or not _are_ends(self.bounds)):
            raise refusal(
                "bounds", self.bounds, "the least and the largest answer, where answers are numbers"
            )
        if isinstance(self.proxy, str):
            _check_proxy(self.proxy, self.parameters)

    @property
    def type(self) -> str:
        """DuckDB's type of an answer."""
        return TYPES[self.returns]

    @property
    def ends(self) -> tuple[str, str] | None:
        """Return the least and the largest answer as SQL, None where they are not known."""
        if self.returns is bool:
            return "FALSE", "TRUE"
        return None if self.bounds is None else (repr(self.bounds[0]), repr(self.bounds[1]))


def costly_function(name: str, fn: AnswerFunction, **given: Any) -> CostlyFunction:
    """Return the function, with its version and the names of its arguments read from `fn` itself."""
    version = given.pop("version", None) or _version_of(fn)
    if version is None:  # it may be another function tomorrow, so its answers are those of this session
        version, given["cache"] = uuid.uuid4().hex, None
    rate = given.pop("rate", None)
    return CostlyFunction(
        name,
        fn,
        version=str(version),
        rate=math.inf if rate is None else rate,
        parameters=_parameters_of(fn),
        **given,
    )


def _check_proxy(proxy: str, parameters: Sequence[str]) -> None:
    """Raise ArgumentError for SQL that cannot be read, or that names more than the function's arguments."""
    try:
        names = columns_of(proxy)
    except SqlError as error:
        raise refusal("proxy", proxy, f"SQL over the names of the function's arguments ({error})") from None
    for name in names:
        if name not in parameters:
            raise ArgumentError(
                f"proxy is {proxy!r}, and {name} is no argument of the function, which has "
                f"{', '.join(parameters) or 'none'}"
            )


def _are_ends(bounds: Sequence[float]) -> bool:
    return len(bounds) == 2 and all(map(is_number, bounds)) and bounds[0] < bounds[1]


def _version_of(fn: AnswerFunction) -> str | None:
    """Return a digest of the function's own code and of the plain values that it has kept; None without one.

    What it calls may change without its knowing.
    """
    code = getattr(fn, "__code__", None)
    if not isinstance(code, CodeType):
        return None
    kept = [cell.cell_contents for cell in getattr(fn, "__closure__", None) or ()]
    kept += [*(getattr(fn, "__defaults__", None) or ()), getattr(fn, "__kwdefaults__", None) or {}]
    if not all(map(_is_plain, kept)):
        return None
    said = (fn.__module__, fn.__qualname__, _of_code(code), repr(kept))
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, (*value, *value.values())))
    return value is None or isinstance(value, bool | int | float | str | bytes)


def _of_code(code: CodeType) -> object:
    constants = [_of_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_varnames


def _parameters_of(fn: AnswerFunction) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return ()


def calls_of(budget: float | str | None, cost: float, functions: int = 1) -> float:
    """Return how many calls a budget pays: a number of calls, or money such as "$3"; inf for None.

    Args:
        budget: as `Session.online_sql` takes it.
        cost: of one row, asked of all functions of the query.
        functions: how many these are. Each is a call.

    >>> calls_of(500, 0.002), calls_of("$3", 0.002), calls_of("$3", 0.003, functions=2), calls_of(None, 0.0)
    (500.0, 1500.0, 2000.0, inf)
    """
    number = check_budget(budget)
    if number is None:
        return math.inf
    if not isinstance(budget, str):
        return number
    if not cost > 0:
        raise ArgumentError(
            f"budget is {budget!r}, but no function of the query says what a row costs; "
            "give cost= to db.function, or a number of calls as the budget"
        )
    return float(functions * math.floor(number / cost + 1e-9))


_FIRST_PAUSE_SECONDS = 0.2
_LOOK_SECONDS = 0.1  # whether a query was stopped that waits for its turn
_STOPPED = "the query was stopped while its rows were asked"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS answers (function TEXT, version TEXT, digest BLOB, question TEXT, "
    "answer TEXT, PRIMARY KEY (function, version, digest)) WITHOUT ROWID"
)


class CostlyCallError(RelaqsError):
    """A costly function failed, or gave no answer that its query could use.

    outward: what users of a server or an agent are told. What a function says may quote a key or a row.
    """

    def __init__(self, message: str, outward: str = "") -> None:
        super().__init__(message)
        self.outward = outward or message


class AnswerCache:
    """The answers that were paid for, in memory, and in a file where there is one. Safe for any thread."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[tuple[str, str, bytes], Any] = {}
        self._lock = threading.Lock()
        self._file: sqlite3.Connection | None = None

    def _open(self) -> sqlite3.Connection | None:
        if self._file is None and self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = sqlite3.connect(self._path, timeout=30.0, check_same_thread=False)
                self._path.chmod(0o600)  # texts that were asked are in it
                self._file.execute("PRAGMA journal_mode=WAL")
                self._file.execute(_SCHEMA)
                self._file.commit()
            except (OSError, sqlite3.Error) as error:
                raise CostlyCallError(
                    f"answers cannot be kept in {self._path}: {error}; give cache= another file, or False"
                ) from error
        return self._file

    def of(self, function: CostlyFunction, digests: Sequence[bytes]) -> dict[bytes, Any]:
        """Return the answers that are known of these questions."""
        found: dict[bytes, Any] = {}
        with self._lock:
            file = self._open()
            for digest in digests:
                key = function.name, function.version, digest
                if key in self._known:
                    found[digest] = self._known[key]
                elif file is not None:
                    row = file.execute(
                        "SELECT answer FROM answers WHERE function = ? AND version = ? AND digest = ?", key
                    ).fetchone()
                    if row is not None:
                        found[digest] = self._known[key] = json.loads(row[0])
        return found

    def keep(
        self,
        function: CostlyFunction,
        digests: Sequence[bytes],
        questions: Sequence[str],
        answers: Sequence[Any],
    ) -> None:
        """Keep answers, in the file before anything else happens."""
        name, version = function.name, function.version
        with self._lock:
            for digest, answer in zip(digests, answers, strict=True):
                self._known[name, version, digest] = answer
            if (file := self._open()) is not None:
                file.executemany(
                    "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)",
                    [
                        (name, version, digest, question, json.dumps(answer))
                        for digest, question, answer in zip(digests, questions, answers, strict=True)
                    ],
                )
                file.commit()

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


class Pace:
    """Lets at most so many rows a second begin, over all queries that call one function.

    The time until the next rows counts from when the last ones began, and not from when they should have: a
    thread that wakes late is not followed by more rows a second.
    """

    def __init__(self, rows_per_second: float) -> None:
        self._rate = rows_per_second
        self._turn = threading.Condition()
        self._free_at = 0.0

    def wait(self, rows: int, stop: threading.Event) -> None:
        """Wait for the turn of so many rows, or for the stop."""
        with self._turn:
            while not stop.is_set():
                now = time.monotonic()
                if now >= self._free_at:
                    self._free_at = now + rows / self._rate
                    return
                self._turn.wait(min(self._free_at - now, _LOOK_SECONDS))


@dataclass(slots=True)
class Registered:
    """A registered function, with the answers and the pace that all its queries share."""

    function: CostlyFunction
    answers: AnswerCache
    pace: Pace


@dataclass(frozen=True, slots=True)
class CallWork:
    """The work of a task: the answers of one function for some rows.

    Attributes:
        rows: its arguments, one column each.
        stop: set when nobody waits for the answers any more.
    """

    called: Registered
    rows: pa.Table
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, owner: str) -> Metered:
        """Return what was `Answered`, with the core-seconds that asking took here, and not the waiting."""
        del owner
        asked = _Asking(self.called, self.rows, self.stop)
        return Metered(asked.result(), asked.core_seconds)


@dataclass(frozen=True, slots=True)
class Answered:
    """AnswerCache, in the order of the rows, and how many of them were paid for now."""

    answers: list[Any]
    paid: int


def _said(error: Exception) -> str:
    """Return an error in words. What a client of a service says may quote a key, and is left out."""
    name = type(error).__name__
    return f"{name}: {error}"[:200] if type(error).__module__ == "builtins" and str(error) else name


class _Asking:
    """Asks one function for the answers to some rows; each answer is kept as soon as it is there."""

    def __init__(self, called: Registered, rows: pa.Table, stop: threading.Event) -> None:
        self._called = called
        self._function = called.function
        self._rows = rows
        self._stop = stop
        self._adding = threading.Lock()
        self.core_seconds = 0.0

    def result(self) -> Answered:
        began = time.thread_time()
        columns = [python_values(column) for column in self._rows.columns]
        questions = [json.dumps(each, default=str, ensure_ascii=False) for each in zip(*columns, strict=True)]
        digests = [hashlib.sha256(each.encode()).digest() for each in questions]
        known = self._called.answers.of(self._function, digests)
        first: dict[bytes, int] = {}
        for i, digest in enumerate(digests):
            if digest not in known:
                first.setdefault(digest, i)
        paid, size = list(first.values()), self._function.batch
        batches = [paid[at : at + size] for at in range(0, len(paid), size)]
        self.core_seconds += time.thread_time() - began

        def keep(batch: list[int], answers: list[Any]) -> None:
            asked = [digests[i] for i in batch]
            self._called.answers.keep(self._function, asked, [questions[i] for i in batch], answers)
            known.update(zip(asked, answers, strict=True))

        if batches:
            self._ask_all(batches, keep)
        return Answered([known[digest] for digest in digests], len(paid))

    def _ask_all(self, batches: list[list[int]], keep: Callable[[list[int], list[Any]], None]) -> None:
        """Ask all batches, so many at once. After an error or a stop no more begin; what runs is kept."""
        failed: BaseException | None = None
        waiting = list(reversed(batches))
        running: dict[Future[list[Any]], list[int]] = {}
        with ThreadPoolExecutor(self._function.concurrency, "relaqs-costly") as pool:
            while running or (waiting and failed is None and not self._stop.is_set()):
                while waiting and failed is None and len(running) < self._function.concurrency:
                    batch = waiting.pop()
                    running[pool.submit(self._ask, batch)] = batch
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    batch = running.pop(future)
                    try:
                        keep(batch, future.result())
                    except BaseException as error:  # it is raised when all that was paid for is kept
                        failed = failed or error
                if self._stop.is_set():
                    failed = failed or CostlyCallError(_STOPPED)
        if failed is not None:
            raise failed

    def _ask(self, batch: list[int]) -> list[Any]:
        """Return the answers of one batch, asked again where it fails."""
        rows = self._rows.take(batch)
        arrays = [column.combine_chunks() for column in rows.columns]
        pause = _FIRST_PAUSE_SECONDS
        for tries in range(self._function.retries + 1):
            self._called.pace.wait(len(batch), self._stop)
            if self._stop.is_set():
                raise CostlyCallError(_STOPPED)
            began = time.thread_time()
            try:
                return self._checked(_called(self._function.fn, arrays), len(batch))
            except CostlyCallError:
                raise
            except Exception as error:
                if tries == self._function.retries or isinstance(error, TypeError):  # which comes again
                    times = f"{tries + 1} times" if tries else "once"
                    failed = f"{self._function.name} failed {times} for a batch of {len(batch)} rows: "
                    kept = "; what was answered before is kept, so the next query goes on from it"
                    outward = failed + type(error).__name__ + kept
                    raise CostlyCallError(failed + _said(error) + kept, outward) from error
            finally:
                with self._adding:
                    self.core_seconds += time.thread_time() - began
            self._stop.wait(pause)
            pause *= 2
        raise AssertionError("the last try returns or raises")

    def _checked(self, given: Any, count: int) -> list[Any]:
        """Return the answers as values of the function's type, None where there is none."""
        if isinstance(given, pa.Array):
            given = pa.chunked_array([given])
        values = python_values(given) if isinstance(given, pa.ChunkedArray) else list(given)
        function = self._function
        if len(values) != count:
            raise CostlyCallError(
                f"{function.name} returned {len(values):,} answers for a batch of {count:,} rows; "
                "it must return one for each"
            )
        return [None if value is None else self._typed(value) for value in values]

    def _typed(self, value: Any) -> Any:
        function = self._function
        if isinstance(value, np.generic):
            value = value.item()
        fits = isinstance(value, bool) if function.returns is bool else isinstance(value, function.returns)
        if function.returns is float and isinstance(value, int) and not isinstance(value, bool):
            value, fits = float(value), True
        if function.returns is int and isinstance(value, bool):
            fits = False
        if not fits:
            raise CostlyCallError(
                f"{function.name} returned a {type(value).__name__}, and it was registered with "
                f"returns={function.returns.__name__}"
            )
        if not _is_kept(value):
            raise CostlyCallError(
                f"{function.name} returned a {type(value).__name__} that a table cannot have: a whole number "
                "has 64 bits, another is finite, and a text is Unicode; return None where there is no answer"
            )
        if function.bounds is not None and not function.bounds[0] <= value <= function.bounds[1]:
            raise CostlyCallError(
                f"{function.name} returned {value!r}, which is outside of its bounds {function.bounds}; "
                "intervals rely on these"
            )
        return value


def _is_kept(value: object) -> bool:
    """Whether a table can have the value. A file of answers would keep it, and later queries fail by it."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, str) or not any("\ud800" <= letter <= "\udfff" for letter in value)


def _called(fn: Any, arrays: Sequence[pa.Array]) -> Any:
    answers = fn(*arrays)
    return asyncio.run(answers) if inspect.iscoroutine(answers) else answers
