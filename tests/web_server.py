"""A web server of this process that serves bytes, parts of them or only the whole."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, files: dict[str, bytes], sends_parts: bool, log: list[str], *rest: object) -> None:
        self._files, self._sends_parts, self._log = files, sends_parts, log
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self._answer(is_head=True)

    def do_GET(self) -> None:
        self._answer(is_head=False)

    def _answer(self, is_head: bool) -> None:
        wanted = self.headers.get("Range", "") if self._sends_parts else ""
        self._log.append(f"{self.command} {self.path} {wanted}".strip())
        if (content := self._files.get(self.path)) is None:
            self.send_error(404)
            return
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted)
        whole = len(content)
        if part:
            content = content[int(part[1]) : int(part[2]) + 1]
        self.send_response(206 if part else 200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hash(self._files[self.path])}"')
        if part:
            self.send_header("Content-Range", f"bytes {part[1]}-{part[2]}/{whole}")
        self.end_headers()
        if not is_head:
            self.wfile.write(content)

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def serving(files: dict[str, bytes], *, sends_parts: bool = True) -> Iterator[tuple[str, list[str]]]:
    """Give the server's address, and the list of the requests that come. files: by path, such as "/a.csv"."""
    log: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, files, sends_parts, log))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", log
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
