"""What an answer must say of itself to be drawn, and what a query must give to be shown live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
from relaqs_bootstrap.arrays import IntArray
from relaqs_engine.execution.estimate import ApproximateColumn


class DrawableAnswer(Protocol):
    """An answer so far, as the renderers see it. `relaqs.Snapshot` documents the attributes.

    Renderers ask for this contract and not for `Snapshot`, because a snapshot draws itself: it imports the
    renderers, so they cannot import it.
    """

    @property
    def table(self) -> pa.Table: ...

    @property
    def estimate(self) -> pa.Table: ...

    @property
    def columns(self) -> tuple[ApproximateColumn, ...]: ...

    @property
    def fraction(self) -> float: ...

    @property
    def error(self) -> float: ...

    @property
    def not_judged(self) -> tuple[str, ...]: ...

    @property
    def reasons(self) -> tuple[str, ...]: ...

    @property
    def doubts(self) -> IntArray: ...

    @property
    def target(self) -> float | None: ...

    @property
    def confidence(self) -> float: ...

    @property
    def interval(self) -> str: ...

    @property
    def confidence_for(self) -> str: ...

    @property
    def elapsed_seconds(self) -> float: ...

    @property
    def is_exact(self) -> bool: ...

    @property
    def unseen_groups(self) -> int | None: ...

    @property
    def certain_rows(self) -> pa.BooleanArray | None: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...

    def within(self, error: float) -> tuple[int, int]: ...

    def __len__(self) -> int: ...


class WatchableQuery(Protocol):
    """A query that gives one snapshot after another, as a notebook sees it. A `relaqs.OnlineQuery` is one."""

    @property
    def latest(self) -> DrawableAnswer | None: ...

    def __iter__(self) -> Iterator[DrawableAnswer]: ...
