"""The pages of docs/ as a test reads them: their blocks of code, in order, and what the page says of each.

A comment before a block says what is special about it:

    <!-- not run: why -->                       a test cannot run it
    <!-- runs while the page is read -->        each line is a server, ended after the page's last block
    <!-- the file evening.toml -->              a later block reads it from there
    <!-- the module relaqs/policies/x.py -->    a whole file for the repository, which works there

A block of text right after a block of code is what that code prints. In it … stands for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ARCHIVE = DOCS / "decisions" / "archive"  # in the repository, and not in the site
_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>[^`]*)$")
_COMMENT = re.compile(r"^<!-- (?P<text>.*) -->$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. line: of its first line of code, from 1. prints: what it prints, None if unsaid."""

    page: Path
    line: int
    language: str
    code: str
    comment: str = ""
    prints: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def reason_not_run(self) -> str | None:
        kind, _, reason = self.comment.partition(": ")
        return reason if kind == "not run" else None

    @property
    def is_server(self) -> bool:
        return self.comment == "runs while the page is read"

    @property
    def file(self) -> str | None:
        """The name under which a later block finds this one."""
        return self._named("the file ")

    @property
    def module(self) -> str | None:
        """The path in the repository where this block is a whole file."""
        return self._named("the module ")

    def _named(self, kind: str) -> str | None:
        return self.comment.removeprefix(kind) if self.comment.startswith(kind) else None


def all_pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def blocks_of(page: Path) -> list[Block]:
    """Return the page's blocks of code, those that only show what is printed as a part of them."""
    found: list[Block] = []
    for block, is_output in _fenced(page):
        if is_output and found and found[-1].prints is None:
            code = found.pop()
            block = Block(code.page, code.line, code.language, code.code, code.comment, block.code)
        found.append(block)
    return found


def _fenced(page: Path) -> Iterator[tuple[Block, bool]]:
    """Yield each block, and whether it is text right after another one."""
    lines = page.read_text(encoding="utf-8").splitlines(keepends=True)
    before, at, follows = "", 0, False
    while at < len(lines):
        opened = _FENCE.match(lines[at].rstrip())
        if opened is None:
            if lines[at].strip():
                before, follows = lines[at].strip(), False
            at += 1
            continue
        end = next(i for i in range(at + 1, len(lines)) if lines[i].rstrip() == opened["fence"])
        comment = _COMMENT.match(before)
        code, language = "".join(lines[at + 1 : end]), opened["language"].strip()
        block = Block(page, at + 2, language, code, comment["text"] if comment else "")
        yield block, language == "text" and follows
        before, at, follows = "", end + 1, language != "text"
