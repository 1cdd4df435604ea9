"""One open page: a WebSocket with at most one update underway. What changes meanwhile is merged."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

from relaqs_dashboards.access import Limits, TokenBucket
from relaqs_dashboards.board import LOG_LINES, Board
from relaqs_dashboards.requests import LONGEST_BYTES, Ack, Name, NewPage, parse_request
from relaqs_dashboards.runs import Run
from relaqs_dashboards.settings import PageError
from relaqs_dashboards.wire import LogLine, encoded, joined

SECONDS_BETWEEN_UPDATES = 0.2  # five a second; people see no more
NO_TEXT, TOO_MUCH, TOO_LARGE = 1003, 1008, 1009  # WebSocket: why it was closed


class ViewedDashboard(Protocol):
    """What a viewer reads besides the board. A `Dashboard` is one."""

    @property
    def readers(self) -> frozenset[str]:
        """The users who may look, and change nothing."""
        ...

    def described(self, board: Board | None, user: str) -> dict[str, object]:
        """Return the page as this user sees it: title, panels, tables."""
        ...

    def cores_of(self, run: Run | None) -> float:
        """Return the cores that a run used over the last second or so."""
        ...

    def cluster_as_seen_by(self, viewer: PageViewer) -> str:
        """Return the cluster's update as JSON."""
        ...

    def add_page(self, viewer: PageViewer, title: str) -> None:
        """Make a page without panels, and tell everybody. Raises PageError if there cannot be one."""
        ...


class PageViewer:
    """Somebody who looks at a page (or, without a board, at the jobs alone)."""

    def __init__(self, socket: WebSocket, dashboard: ViewedDashboard, board: Board | None, user: str) -> None:
        self.user = user
        self.shown_name = user
        self.board = board
        self._socket = socket
        self._dashboard = dashboard
        self._panels: set[str] = set(board.panels) if board is not None else set()
        self._page_is_new = True
        self._cluster_is_new = True
        self._notice: str | None = None
        self._log: deque[LogLine] = deque(board.log if board is not None else (), maxlen=LOG_LINES)
        self._known_answers: dict[str, tuple[int, int]] = {}
        self._seq = 0
        self._sent_seconds = 0.0
        self._news = asyncio.Event()
        self._acknowledged = asyncio.Event()
        self._acknowledged.set()

    def panel_changed(self, panel: str) -> None:
        self._panels.add(panel)
        self._news.set()

    def page_changed(self) -> None:
        self._page_is_new = True
        self._news.set()

    def cluster_changed(self) -> None:
        self._cluster_is_new = True
        self._news.set()

    def logged(self, line: LogLine) -> None:
        self._log.append(line)
        self._news.set()

    def notify(self, text: str) -> None:
        self._notice = text
        self._news.set()

    async def serve(self, limits: Limits) -> None:
        """Send updates and take requests until either side goes."""
        self._news.set()
        both = [asyncio.create_task(self._send()), asyncio.create_task(self._receive(limits))]
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        for task in done:
            if not isinstance(error := task.exception(), WebSocketDisconnect | RuntimeError | None):
                raise error

    async def _send(self) -> None:
        while True:
            await self._news.wait()
            await self._acknowledged.wait()
            await asyncio.sleep(self._sent_seconds + SECONDS_BETWEEN_UPDATES - time.monotonic())
            self._news.clear()
            self._seq += 1
            text = self._update()
            self._acknowledged.clear()
            self._sent_seconds = time.monotonic()
            await self._socket.send_text(text)

    async def _receive(self, limits: Limits) -> None:
        bucket = TokenBucket(limits.messages_per_second, limits.burst_messages, time.monotonic)
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                await self._socket.close(NO_TEXT, "a message is text")
                return
            if len(text) > LONGEST_BYTES:
                await self._socket.close(TOO_LARGE, "the message is too long")
                return
            if not bucket.take():
                await self._socket.close(TOO_MUCH, "too many messages")
                return
            self._take(text)

    def _take(self, text: str) -> None:
        try:
            request = parse_request(text)
            if isinstance(request, Ack):
                if request.seq == self._seq:
                    self._acknowledged.set()
            elif self.user in self._dashboard.readers and not isinstance(request, Name):
                raise PageError("you may look at this page, and not change it")
            elif isinstance(request, NewPage):
                self._dashboard.add_page(self, request.title)
            elif self.board is not None:
                self.board.answer(self, request)
        except PageError as error:
            self.notify(str(error))

    def _update(self) -> str:
        """Return all that is new since the last update, as JSON."""
        entries = {"type": '"update"', "seq": encoded(self._seq)}
        if self._page_is_new:
            entries["page"] = encoded(self._dashboard.described(self.board, self.user))
        if self.board is not None:
            panels = {id: self._panel(self.board, id) for id in self._panels if id in self.board.panels}
            entries["panels"] = joined(panels)
            entries["viewers"] = encoded(len(self.board.viewers))
        if self._cluster_is_new:
            entries["cluster"] = self._dashboard.cluster_as_seen_by(self)
        if self._log:
            entries["log"] = encoded(list(self._log))
        entries["notice"] = encoded(self._notice)
        self._page_is_new = self._cluster_is_new = False
        self._panels.clear()
        self._log.clear()
        self._notice = None
        return joined(entries)

    def _panel(self, board: Board, id: str) -> str:
        """Return the panel's update; with its answer only if this viewer does not have it yet."""
        panel = board.panels[id]
        text = encoded(panel.update(self._dashboard.cores_of(panel.run)))
        if panel.run is None or panel.run.snapshot is None:
            return text
        newest = (panel.number, panel.run.version)
        if self._known_answers.get(id) == newest:
            return text
        self._known_answers[id] = newest
        return f'{text[:-1]},"answer":{panel.run.answer}}}'
