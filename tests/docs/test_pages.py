"""Every block of code in docs/ does what its page says: a page is read from top to bottom, in one folder."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import relaqs
from relaqs.cli import data as flights
from tests.docs.pages import ROOT, Block, all_pages, blocks_of

PAGES = {str(page.relative_to(ROOT / "docs")): page for page in all_pages()}
RUN = {"python", "ipython", "console", "bash", "sql", "toml", "json"}
SHOWN = {"text", "ts", ""}  # drawings, output, and TypeScript, whose own tests compile it
DIRECTIVE = re.compile(r"^\{[\w-]+\}")  # of the site's generator
MOST_NOT_RUN = 9
PORTS = ("8786", "8765", "8766", "5433")  # what pages name; a test takes free ones
SMALLER = {
    "--scale 1": "--scale 0.001",
    "--jobs 12": "--jobs 2",
    "--seeds 3": "--seeds 1",
}
# This shows how a model is fitted, and nothing that depends on how many rows it has.
OF_FEWER_ROWS = {"training.md"}
FEWER = ('arr_delay IS NOT NULL\n"""', 'arr_delay IS NOT NULL AND month = 1\n"""')
STARTED_SECONDS = 30.0
# The tools of this environment first, and this checkout in the place of whatever is installed.
ENVIRONMENT = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the quickstart leaves it: the flights' Parquet files, and the warehouse made of them."""
    folder = tmp_path_factory.mktemp("data")
    flights.write_parquet(folder)
    flights.lay_out(folder / "warehouse")
    return folder


@dataclass
class Reader:
    """Somebody who reads a page in a folder of their own, and tries what it says."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    ports: dict[str, str] = field(default_factory=lambda: {port: _free_port() for port in PORTS})
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def read(self, block: Block) -> None:
        if block.file is not None:
            (self.folder / block.file).write_text(block.code, encoding="utf-8")
        if block.is_server:
            self._serve(block)
            return
        printed = getattr(self, f"_run_{block.language}")(block)
        if block.prints is not None:
            _compare(block, printed)

    def _run_python(self, block: Block) -> str:
        code = block.code.replace(*FEWER) if block.page.name in OF_FEWER_ROWS else block.code
        source = "\n" * (block.line - 1) + self._here(code)
        with mock.patch.dict(os.environ, ENVIRONMENT), contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(source, str(block.page), "exec"), self.names)
        return printed.getvalue()

    def _run_ipython(self, block: Block) -> str:
        """Run a cell of a notebook. A page's cells share one shell."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.shell.run_cell(block.code).raise_error()
        return printed.getvalue()

    @cached_property
    def shell(self) -> InteractiveShell:
        return InteractiveShell(config=Config(HistoryManager={"enabled": False}))

    def _run_console(self, block: Block) -> str:
        commands = [line.removeprefix("$ ") for line in block.code.splitlines()]
        return "".join(self._typed(command, block) for command in commands)

    def _run_sql(self, block: Block) -> str:
        with relaqs.connect("warehouse") as db:
            for statement in filter(str.strip, block.code.split(";")):
                assert db.online_sql(statement).result().is_exact
        return ""

    def _run_toml(self, block: Block) -> str:
        tomllib.loads(block.code)
        return ""

    def _run_json(self, block: Block) -> str:
        json.loads(block.code)
        return ""

    def _typed(self, command: str, block: Block) -> str:
        command = self._here(command)
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=os.environ | ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == 0, f"{block.place}: {command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def _serve(self, block: Block) -> None:
        """Start each line as a process of its own, and wait until whatever port it opens can be used."""
        for line in filter(str.strip, block.code.splitlines()):
            command = self._here(line)
            self.servers.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command}"],
                    cwd=self.folder,
                    env=os.environ | ENVIRONMENT,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
            if opened := re.search(r"--port (\d+)", command):
                _wait_for(int(opened[1]), block)

    def leave(self) -> None:
        if "shell" in vars(self) and self.shell.find_line_magic("relaqs") is not None:
            self.shell.run_line_magic("relaqs", "").close()  # IPython keeps the shell until the process ends
        for server in reversed(self.servers):
            os.killpg(server.pid, signal.SIGTERM)
        for server in self.servers:
            server.wait(timeout=30)

    def _here(self, text: str) -> str:
        """Return the text with free ports, and with sizes that a test can wait for."""
        mine = self.ports | SMALLER
        return re.sub("|".join(map(re.escape, mine)), lambda found: mine[found[0]], text)


@pytest.fixture
def reader(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """A reader with a folder of their own, where nothing that a page writes changes another's data."""
    folder = tmp_path / "reader"
    shutil.copytree(data, folder, copy_function=os.link)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")  # an answer is drawn as wide as its terminal
    monkeypatch.setenv("RELAQS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    reader = Reader(folder)
    try:
        yield reader
    finally:
        reader.leave()


# Start servers, lay the flights or TPC-H out several times, or train for long; `make test-slow` runs them.
SLOW = {
    "benchmarks.md",
    "guide/cluster.md",
    "guide/dask-clients.md",
    "guide/dashboard.md",
    "guide/joins-and-layouts.md",
    "guide/serve.md",
    "guide/simulating.md",
    "guide/tpch.md",
    "guide/training-on-a-cluster.md",
    "guide/your-data.md",
    "robustness.md",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
        for name, page in PAGES.items()
        if blocks_of(page)
    ],
)
def test_what_the_page_shows_runs(name: str, reader: Reader) -> None:
    if name == "quickstart.md":
        shutil.rmtree("warehouse")  # this page makes it, and the files
        for file in Path().glob("*.parquet"):
            file.unlink()
    for block in blocks_of(PAGES[name]):
        if block.language in RUN and block.reason_not_run is None:
            reader.read(block)


def test_every_block_is_of_a_known_kind() -> None:
    odd = [
        f"{block.place}: {block.language!r}"
        for page in PAGES.values()
        for block in blocks_of(page)
        if block.language not in RUN | SHOWN and not DIRECTIVE.match(block.language)
    ]
    assert odd == []


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    reasons = {
        block.place: block.reason_not_run
        for page in PAGES.values()
        for block in blocks_of(page)
        if block.reason_not_run is not None or block.language == "ts"
    }
    assert len(reasons) <= MOST_NOT_RUN, reasons
    assert all(reasons.values()), reasons


def test_a_page_that_lies_is_found(reader: Reader) -> None:
    block = Block(ROOT / "docs" / "page.md", 2, "python", "print(1 + 1)\n", prints="3\n")
    with pytest.raises(AssertionError, match=r"page\.md:2 prints"):
        reader.read(block)


def _compare(block: Block, printed: str) -> None:
    assert block.prints is not None
    shown, came = (_without_blanks(text) for text in (block.prints, printed))
    pattern = re.escape(shown).replace("…", ".*")
    assert re.fullmatch(pattern, came, re.DOTALL), f"{block.place} prints\n{came}\nand not\n{shown}"


def _without_blanks(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _free_port() -> str:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])


def _wait_for(port: int, block: Block) -> None:
    deadline = time.monotonic() + STARTED_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError(f"{block.place}: nothing answers at port {port} after {STARTED_SECONDS:.0f} s")


@pytest.mark.parametrize("name", sorted(OF_FEWER_ROWS))
def test_the_training_guides_are_run_with_fewer_rows(name: str) -> None:
    assert FEWER[0] in (ROOT / "docs" / "guide" / name).read_text(encoding="utf-8")
