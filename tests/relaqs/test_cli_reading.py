"""While files are read, a terminal shows how far that is, and a pipe nothing. Ctrl-C ends it at once."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-m", "relaqs"]
DIGESTS = ", ".join(f"count(DISTINCT md5(line || '{i}')) AS n{i}" for i in range(8))
SLOW = f"SELECT {DIGESTS} FROM lines"  # seconds of one core


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.csv"
    path.write_text("line\n" + "".join(f"line {i}\n" for i in range(900_000)))
    return path


def on_a_terminal(*arguments: str | Path) -> str:
    """Return what the program writes to a terminal, whichever way it writes it there."""
    controller, terminal = pty.openpty()
    size = {"COLUMNS": "100", "LINES": "24", "TERM": "xterm-256color"}
    command = [*PROGRAM, *map(str, arguments)]
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, env=os.environ | size) as process:
        os.close(terminal)
        written = b""
        try:
            while part := os.read(controller, 65536):
                written += part
        except OSError:  # the terminal's last user has left
            pass
        assert process.wait(60) == 0
    os.close(controller)
    return written.decode()


def test_a_terminal_shows_how_much_of_a_csv_file_was_read(lines: Path) -> None:
    shown = on_a_terminal("sql", SLOW, "--data", lines)
    clocks = [float(each) for each in re.findall(r"(\d+\.\d) s · reading lines \d+%", shown)]
    assert len(set(clocks)) > 2
    assert clocks == sorted(clocks)
    assert clocks[0] < 1.5, "from the first second on it says what is done"
    assert shown.rindex("reading") < shown.index("900,000")


def test_a_pipe_gets_the_answer_alone(lines: Path) -> None:
    command = [*PROGRAM, "sql", SLOW, "--data", str(lines), "--format", "csv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.count("900000"), done.stderr) == (0, 8, "")


def test_ctrl_c_ends_it_at_once_while_the_types_of_all_rows_are_found_out(tmp_path: Path) -> None:
    """DuckDB looks at the whole of a JSON file with nested numbers, and hears nothing meanwhile."""
    path = tmp_path / "nested.json"
    with path.open("wb") as file:
        for _ in range(300):
            file.write(b'{"a": {"b": 12345678, "text": "abcdefghijklmnopqrstuvwxyz"}}\n' * 16_000)
    command = [*PROGRAM, "sql", "SELECT count(*) FROM nested", "--data", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert b"copying nested" in process.stderr.readline()
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 130
        finally:
            process.kill()
        assert time.monotonic() - asked < 2
        assert process.stderr.read() == b""
