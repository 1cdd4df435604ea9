"""One dashboard: its session, its pages and who looks at them. What the server's routes ask things of.

Who asked what is in the audit log, one JSON object a line, in a file that does not grow without end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaqs import RelaqsError, Session
from relaqs.opening import FOLLOW_SECONDS
from relaqs.queries.snapshot import ConfidenceFor, Interval
from relaqs_dashboards.access import Limits
from relaqs_dashboards.board import Board
from relaqs_dashboards.cluster import Moves, Shown, cluster_update
from relaqs_dashboards.pages import PageList
from relaqs_dashboards.runs import Run, Runs, Threads
from relaqs_dashboards.settings import CHARTS, TEXT, PageSettings
from relaqs_dashboards.viewer import PageViewer
from relaqs_dashboards.wire import ShownFilter, encoded

if TYPE_CHECKING:
    from relaqs.jobs.job import ClusterStatus

LARGEST_BYTES = 8 << 20
KEPT_FILES = 3
LONGEST_VALUE = 2_000


class AuditLog:
    """Appends entries to a file; once it is full it becomes `.1`, that `.2`, and the oldest goes.

    clock: seconds since 1970.
    """

    def __init__(
        self, path: Path, *, largest_bytes: int = LARGEST_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._largest_bytes = largest_bytes
        self._clock = clock
        self._file = path.open("a", encoding="utf-8")
        path.chmod(0o600)  # it holds every query that anybody asked

    def note(self, what: str, user: str | None, **circumstances: Any) -> None:
        """Write one entry, on disk at once. Long texts are cut."""
        entry = {"at": round(self._clock(), 3), "what": what, "user": user}
        entry |= {name: _short(value) for name, value in circumstances.items()}
        self._file.write(json.dumps(entry, default=str) + "\n")
        self._file.flush()
        if self._file.tell() >= self._largest_bytes:
            self._rotate()

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        for number in range(KEPT_FILES, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._file = self._path.open("a", encoding="utf-8")
        self._path.chmod(0o600)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        return value[:LONGEST_VALUE] + "…"
    return value


SAMPLE_SECONDS = 0.5  # between two looks at the cluster
KEPT_CHECKPOINTS = 200


class Dashboard:
    """Live pages over one session.

    Args:
        state: the folder for pages, checkpoints and the audit log; made if need be.
        data: what is shown, for people.
        given: files that are pages, too.
        readers: users who may look, and change nothing.
        budget: what the query of a panel may ask the session's costly functions, as `asked_by` takes it.
    """

    def __init__(
        self,
        session: Session,
        state: Path,
        *,
        data: str,
        given: tuple[Path, ...] = (),
        limits: Limits | None = None,
        confidence: float = 0.95,
        interval: Interval = "pointwise",
        confidence_for: ConfidenceFor = "cell",
        readers: Collection[str] = (),
        budget: float | str = 0,
    ) -> None:
        self.limits = limits or Limits()
        self.readers = frozenset(readers)
        self.session = session
        checkpoints = state / "queries"
        for folder in (state, checkpoints):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _prune(checkpoints)
        self.audit = AuditLog(state / "audit.jsonl")
        measured = session.measured_tables()
        self.pages = PageList(state / "pages", measured, given)
        self.runs = Runs(
            session,
            checkpoints,
            self.limits,
            confidence=confidence,
            interval=interval,
            confidence_for=confidence_for,
            budget=budget,
        )
        self.runs.measured = measured
        self.viewers: set[PageViewer] = set()
        self._data = data
        self._boards: dict[str, Board] = {}
        self._status: ClusterStatus | None = None
        self._used_cores: Mapping[str, float] = {}
        self._moves = Moves()
        self._looking: list[asyncio.Task[None]] = []
        self._asking = Threads("relaqs-status", 1)
        self._reading = Threads("relaqs-tables", 1)

    def start(self) -> None:
        """Begin to look at the cluster and at the tables' files; on the event loop that serves the pages."""
        self._looking = [asyncio.create_task(self._sample()), asyncio.create_task(self._follow())]

    async def close(self) -> None:
        """Stop every query, its state kept."""
        for each in self._looking:
            each.cancel()
        await self.runs.close()
        self.audit.close()

    def board(self, name: str, user: str) -> Board:
        """Return the live page of that name. Raises PageError if the user may not see one."""
        self.pages.page(name, user)
        if name not in self._boards:
            self._boards[name] = Board(
                self.pages.as_left(name, user),
                self.runs,
                keep=self.pages.keep,
                save=self.pages.save,
                discard=self.pages.discard,
                note=self.audit.note,
            )
        return self._boards[name]

    def add_page(self, viewer: PageViewer, title: str) -> None:
        """Make a page without panels, and tell everybody. Raises PageError if there cannot be one."""
        page = self.pages.add(title)
        self.audit.note("made the page", viewer.user, name=viewer.shown_name, page=page.name, panel=None)
        for each in self.viewers:
            each.page_changed()
        viewer.notify(f"made the page {page.title}")

    def join(self, viewer: PageViewer) -> None:
        self.viewers.add(viewer)
        if viewer.board is not None:
            viewer.board.join(viewer)

    def leave(self, viewer: PageViewer) -> None:
        self.viewers.discard(viewer)
        if viewer.board is not None:
            viewer.board.leave(viewer)

    def described(self, board: Board | None, user: str) -> dict[str, object]:
        """Return a page as its viewers are told of it; without a board that of all jobs."""
        page = board.page if board is not None else PageSettings("jobs", "All jobs", ())
        tables = [
            {"name": name, "columns": [{"name": c.name, "type": c.type} for c in layout.columns]}
            for name, layout in self.session.tables.items()
        ]
        return {
            "name": page.name if board is not None else "",
            "title": page.title,
            "panels": page.panels,
            "editable": board is not None and user not in self.readers,
            "data": self._data,
            "pages": [{"name": each.name, "title": each.title} for each in self.pages.pages(user)],
            "tables": tables,
            "times": board.times if board is not None else (),
            "units": board.units if board is not None else (),
            "filters": [
                ShownFilter(
                    each.id, each.panel, each.column, each.selection, each.table if not each.panel else None
                )
                for each in (board.filters.values() if board is not None else ())
            ],
            "charts": [{"kind": kind, "name": name} for kind, name in (*CHARTS.items(), (TEXT, "text"))],
        }

    def cores_of(self, run: Run | None) -> float:
        """Return the cores a run used over the last second or so."""
        return 0.0 if run is None or run.query is None else self._used_cores.get(run.query.id, 0.0)

    def cluster_as_seen_by(self, viewer: PageViewer) -> str:
        """Return the cluster's update as JSON; jobs of pages that the viewer may not see have no title."""
        if self._status is None:
            return "null"
        shown = {
            run.query.id: found
            for run in self.runs.all
            if run.query is not None and (found := self._shown(run, viewer)) is not None
        }
        return encoded(cluster_update(self._status, shown, int(time.time() * 1000)))

    def _shown(self, run: Run, viewer: PageViewer) -> Shown | None:
        """Return what a viewer may know of a run: by a panel of its own page first."""
        found = None
        for board in self._boards.values():
            if board.page.owner not in (None, viewer.user):
                continue
            for panel in board.panels.values():
                if panel.run is run:
                    if board is viewer.board:
                        return Shown(panel.settings.title, panel.settings.id)
                    found = Shown(panel.settings.title)
        return found

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            with contextlib.suppress(RelaqsError):  # a cluster that is gone for a moment
                self._take(await self._asking.run("", self.session.status))

    async def _follow(self) -> None:
        """Run the panels anew that read tables whose files have changed, once what runs now has ended."""
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            with contextlib.suppress(RelaqsError, OSError, RuntimeError):  # such as that no thread is left
                changed = await self._reading.run("", self.session.refresh_changed)
                self._run_anew({name.lower() for name in changed})
                if changed:
                    self.runs.measured = await self._reading.run("", self.session.measured_tables)
                    for board in self._boards.values():
                        board.read_changed()

    def _run_anew(self, changed: Set[str]) -> None:
        """Run the panels anew that read these tables. All let go first, or runs of before would be shared."""
        known = self.runs.column_names().keys()
        stale = []
        for board in self._boards.values():
            for panel in board.panels.values():
                read = panel.reading.tables if panel.reading is not None else changed
                is_touched = bool(changed) and (bool(changed & read) or not read <= known)  # a view's name
                if panel.run is not None:
                    panel.run.is_stale = panel.run.is_stale or is_touched
                    if panel.run.is_stale and not panel.run.is_active:
                        stale.append((board, panel))
                elif is_touched and panel.settings.chart != TEXT:
                    stale.append((board, panel))
        for _, panel in stale:
            panel.close()
        for board, panel in stale:
            board.run_anew(panel)

    def _take(self, status: ClusterStatus) -> None:
        """Tell every viewer how things stand, if there is anything to tell."""
        before, self._status = self._status, status
        self._used_cores = {job.id: job.used_cores for job in status.jobs}
        moved, what = self._moves.see(status) or ("", "")
        for board in self._boards.values():
            for panel in board.panels.values():
                if panel.run is None or panel.run.query is None:
                    continue
                if panel.run.query.id == moved and board.viewers:
                    board.tell(f"“{panel.settings.title}” {what}")
                if panel.run.is_active:
                    board.touch(panel)
        if status.jobs or (before is not None and before.jobs) or before is None:
            for viewer in self.viewers:
                viewer.cluster_changed()


def _prune(checkpoints: Path) -> None:
    """Remove the oldest states but for a number that is enough for any page."""
    kept = sorted(checkpoints.glob("*.arrow"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[KEPT_CHECKPOINTS:]:
        path.unlink(missing_ok=True)
