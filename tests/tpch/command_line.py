"""Commands as they are typed, in this process."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from relaqs.cli import program

MIX = (
    "--queries", "1,6", "--training", "30%", "--jobs", "5", "--arrival", "0.05,0.02", "--seeds", "1",
    "--threads", "2",
)  # fmt: skip


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit code and everything printed; records name the command as if it had been typed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["relaqs", *arguments])
        ended = CliRunner().invoke(program, arguments)
    return ended.exit_code, ended.output
