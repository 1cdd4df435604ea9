"""What Dask's scheduler keeps about finished work."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

from typing import TYPE_CHECKING

from relaqs.executors.dask.names import KEY_PREFIX

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler
    from distributed.spans import Span

DEFAULT_SPAN = "default"
KEPT_SPANS = 20  # the newest, which Dask's own pages show


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
