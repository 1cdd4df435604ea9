"""Faults that are raised in our own code: any error, at any call of any function, on any thread."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import pyarrow as pa

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(f"{ROOT / folder}/" for folder in ("bootstrap", "engine", "relaqs"))  # a .venv is not
Place = tuple[str, str]  # a file, and the full name of a function in it

ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: ValueError("injected"),
    lambda: KeyError("injected"),
    lambda: AssertionError(),
    lambda: StopIteration(),
    lambda: RecursionError("injected"),
    lambda: ZeroDivisionError("injected"),
    lambda: TypeError("injected"),
    lambda: IndexError("injected"),
    lambda: RuntimeError("injected"),
    lambda: MemoryError(),
    lambda: OSError(28, "No space left on device"),
    lambda: OSError("injected"),
    lambda: UnicodeDecodeError("utf8", b"a", 0, 1, "injected"),
    lambda: pa.ArrowInvalid("injected"),
    lambda: duckdb.InternalException("INTERNAL Error: injected"),
    lambda: duckdb.BinderException("Binder Error: injected"),
)

# Nothing of ours stands around these: what the asker's thread calls, where threads of ours begin and end, and
# what says whose turn it is.
BESIDE_QUERIES = (
    "relaqs/executors/places.py",
    "relaqs/executors/threads.py",
    "relaqs/jobs/executor.py:run_measured",
    "relaqs/jobs/executor.py:without_frames",
    "relaqs/jobs/executor.py:raised_anew",
    "relaqs/jobs/executor.py:busy_seconds",
    "relaqs/jobs/executor.py:client_name",
    "relaqs/jobs/executor.py:user_name",
    "relaqs/policies/",
    "relaqs/prediction/",
    "relaqs/scheduling/",
    "relaqs/sharing/",
    "relaqs/jobs/handle.py:Feed.",
    "relaqs/jobs/handle.py:Reader.",
    "relaqs/jobs/handle.py:Handle.",
    "relaqs/jobs/handle.py:_stop",
    "relaqs/jobs/executor.py:is_set_in_time",
    "relaqs/jobs/executor.py:wait_pieces",
    "relaqs/arguments.py",
    "relaqs/queries/online_query.py:OnlineQuery.",
    "relaqs/queries/online_query.py:_seconds_left",
    "relaqs/queries/options.py",
)
OUTERMOST = {
    "<module>",
    "JobRunner._run",
    "JobRunner.stop",
    "Publisher.ended",
    "RunListener.ended",
    "Session.online_sql",
    "Session.submit",
    "Session.start",
    "ThreadExecutor._serve",
    "naming",
}


@dataclass(slots=True)
class Injector:
    """Notes which functions are called, and raises an error at one call, in each thread once at most."""

    called: Counter[Place] = field(default_factory=Counter)
    place: Place | None = None
    calls_before: int = 0
    error: Exception | None = None
    has_raised: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arm(self, place: Place, calls_before: int, error: Exception) -> None:
        self.calls_before, self.error, self.has_raised, self.place = calls_before, error, False, place

    def disarm(self) -> None:
        self.place = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(OURS):
            return
        place = (file[len(str(ROOT)) + 1 :], frame.f_code.co_qualname)
        with self._lock:
            self.called[place] += 1
            if place != self.place or self.has_raised:
                return
            self.calls_before -= 1
            if self.calls_before >= 0:
                return
            self.has_raised = True
        assert self.error is not None
        raise self.error


@contextmanager
def injecting() -> Iterator[Injector]:
    """Watch the threads that are started inside the block."""
    injector, before = Injector(), threading.gettrace()
    threading.settrace(injector)
    try:
        yield injector
    finally:
        injector.disarm()
        threading.settrace(before)  # type: ignore[arg-type]  # None takes it away


def drawn(called: Sequence[Counter[Place]], count: int, seed: int) -> list[tuple[int, Place, int, Exception]]:
    """Return where to raise what: at which question, in which function, after how many calls of it.

    called: the functions that each question calls.
    """
    draw = random.Random(seed)
    pairs = sorted(
        (question, place)
        for question, places in enumerate(called)
        for place in places
        if not ":".join(place).startswith(BESIDE_QUERIES) and place[1] not in OUTERMOST
    )
    return [
        (question, place, draw.randrange(min(6, called[question][place])), draw.choice(ERRORS)())
        for question, place in draw.sample(pairs, count)
    ]


def in_time(ask: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Return what the call returns, on a thread of its own. Raises TimeoutError if it hangs."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(ask())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        names = {each.ident: each.name for each in threading.enumerate()}
        raise TimeoutError(
            f"nothing came within {seconds} s: "
            + "; ".join(
                f"{names.get(thread)} in {frame.f_code.co_qualname}"
                for thread, frame in sys._current_frames().items()
            )
        )
    return found[0]
