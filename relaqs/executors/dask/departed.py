"""What is over, and what Dask still does about it: workers that are gone, and the spans of finished work."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from relaqs.executors.dask.names import KEY_PREFIX

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler
    from distributed.spans import Span

KEEP_SECONDS = 10.0  # so long after a worker's end, nothing begins to connect to it any more
DEFAULT_SPAN = "default"
KEPT_SPANS = 20  # the newest, which Dask's own pages show


class Departed:
    """Ends attempts to connect to workers that are gone.

    When Dask removes a worker, it ends the attempts that run. An attempt may begin an instant later, to fetch
    a result that the worker had. It goes on for half a minute, and all results asked for in the same message
    wait with it. On a cluster that loses a worker every few seconds, jobs would then stand still.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._until_seconds: dict[str, float] = {}  # by address, on the monotonic clock

    def note(self, address: str) -> None:
        """Note that a worker was removed."""
        self._until_seconds[address] = time.monotonic() + KEEP_SECONDS

    def look(self) -> None:
        """End the attempts that run now. Call it every second or so."""
        now = time.monotonic()
        self._until_seconds = {
            address: until
            for address, until in self._until_seconds.items()
            if until > now and address not in self._scheduler.workers
        }
        for address in self._until_seconds:
            self._scheduler.rpc.remove(address, reason="the worker is gone")


class PastSpans:
    """Forgets old spans of our jobs.

    Dask begins a `Span` when work comes after a time without work. It keeps each span for ever, with its
    groups of tasks. One query costs the scheduler some 10 kB in this way, and a scheduler runs for months.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._known = scheduler.extensions.get("spans")
        self._stand_in: Span | None = None

    def look(self) -> None:
        """Forget the spans that are over, except the newest. Call it every second or so."""
        if self._known is None:
            return
        old = self._known.spans_search_by_name[DEFAULT_SPAN,][:-KEPT_SPANS]
        over = {span.id: span for span in old if span.done and _is_ours(span)}
        if not over:
            return
        if self._stand_in is None:
            self._stand_in = next(iter(over.values()))
        for span in over.values():
            span.groups.clear()
            self._known.spans[span.id] = self._stand_in  # a late heartbeat of a worker may name it
        for spans in (
            self._known.root_spans,
            self._known.spans_search_by_name[DEFAULT_SPAN,],
            self._known.spans_search_by_tag[DEFAULT_SPAN],
        ):
            spans[:] = [span for span in spans if span.id not in over]


def _is_ours(span: Span) -> bool:
    return all(str(group.name).startswith(KEY_PREFIX) for group in span.groups)
