"""A server that answers over the protocol of Postgres, in a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SAID = re.compile(r"Serving on ([\w.:]+):(\d+)\.")
_END_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Running:
    """A server that listens. said: the lines before that with its address."""

    host: str
    port: int
    process: subprocess.Popen[str]
    said: tuple[str, ...] = ()

    def address(self, user: str = "ana") -> str:
        return f"host={self.host} port={self.port} user={user} dbname=relaqs"

    def url(self, driver: str, user: str = "ana") -> str:
        return f"postgresql+{driver}://{user}@{self.host}:{self.port}/relaqs"


@contextmanager
def serving(data: Path, *options: str, stderr: int | None = None) -> Iterator[Running]:
    """Give a server in a process of its own, on a port that the system chose. It ends as by ctrl-C."""
    command = [sys.executable, "-m", "relaqs", "serve", "--data", str(data), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            assert process.stdout is not None
            before: list[str] = []
            while (said := _SAID.match(line := process.stdout.readline())) is None:
                assert line, f"the server said {before}"
                before.append(line)
            yield Running(said[1], int(said[2]), process, tuple(before))
        finally:
            process.send_signal(signal.SIGINT)  # nothing where it has ended
            try:
                process.wait(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
