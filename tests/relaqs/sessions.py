"""What tests do with sessions: make them, ask them for exact answers, and for all answers on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from unittest import mock

import relaqs
from relaqs.jobs.handle import End, Feed
from tests.rows import rows_of

Connect = Callable[..., relaqs.Session]


def threads_of(prefix: str) -> set[threading.Thread]:
    """Return the threads of this process whose names begin so. Sessions of other tests may have some."""
    return {each for each in threading.enumerate() if each.name.startswith(prefix)}


def exact_rows(db: relaqs.Session, sql: str) -> list[tuple[object, ...]]:
    """Return the rows of an answer, which must be exact."""
    found = db.online_sql(sql).result()
    assert found.is_exact
    return rows_of(found.estimate)


def every_snapshot(ask: Callable[[], relaqs.OnlineQuery]) -> list[relaqs.Snapshot]:
    """Return all snapshots of a query in their order. A loop over the query skips some if it is slow.

    Args:
        ask: starts the query.

    Raises:
        RelaqsError: the query failed.
    """
    published: list[tuple[object, relaqs.Snapshot]] = []
    publish = Feed.publish

    def note(feed: Feed[relaqs.Snapshot], snapshot: relaqs.Snapshot, end: End | None = None) -> bool:
        published.append((feed, snapshot))
        return publish(feed, snapshot, end)

    with mock.patch.object(Feed, "publish", note):
        query = ask()
        query.result()
    return [snapshot for feed, snapshot in published if feed is query._publisher.feed]
