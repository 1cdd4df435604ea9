"""Which pages there are: those built in, those saved, those given, and one for each other table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from relaqs_dashboards.generated import page_of_table
from relaqs_dashboards.page_file import parse_page, read_page, write_page
from relaqs_dashboards.settings import PageError, PageSettings

if TYPE_CHECKING:
    from relaqs import Layout

# The built-in pages: the tables they read, and others of the same data that need no page of their own.
BUILT_IN = {
    "tpch": ({"lineitem", "orders", "customer", "nation", "region", "part"}, {"supplier", "partsupp"}),
    "flights": ({"flights", "airlines"}, {"airports", "planes", "weather"}),
}


class PageList:
    """The pages of one server.

    A page that was saved takes the place of the built-in one of its name; a file that was given takes the
    place of both, and is what saving writes. Changes that are not saved yet outlive the server in a file of
    their own, folder/unsaved, until the page is saved there or its file is edited otherwise. Raises PageError
    for a file that is none.

    Args:
        folder: where pages are saved.
        given: files that are pages, too.
    """

    def __init__(self, folder: Path, tables: Mapping[str, Layout], given: tuple[Path, ...] = ()) -> None:
        self._folder = folder
        self._unsaved = folder / "unsaved"
        self._unsaved.mkdir(parents=True, exist_ok=True)
        self._paths: dict[str, Path] = {}
        self._pages = {page.name: page for page in _made(tables)}
        for path in (*sorted(folder.glob("*.toml")), *given):
            page = read_page(path)
            self._pages[page.name] = page
            self._paths[page.name] = path
        self.first = given[-1].stem if given else next(iter(self._pages), "")

    def pages(self, user: str) -> tuple[PageSettings, ...]:
        """Return the pages that the user may see, the first one first."""
        seen = [page for page in self._pages.values() if page.owner in (None, user)]
        return tuple(sorted(seen, key=lambda page: page.name != self.first))

    def page(self, name: str, user: str) -> PageSettings:
        """Return a page. Raises PageError alike for one that is not there and one that is another user's."""
        page = self._pages.get(name)
        if page is None or page.owner not in (None, user):
            raise PageError(f"there is no page {name[:80]!r}")
        return page

    def as_left(self, name: str, user: str) -> PageSettings:
        """Return a page with the changes that were not saved. Raises PageError as `page` does."""
        saved, path = self.page(name, user), self._draft(name)
        if not path.exists() or (name in self._paths and _changed_ns(path) < _changed_ns(self._paths[name])):
            return saved
        try:
            return replace(read_page(path), owner=saved.owner)
        except PageError:  # of another version, perhaps
            return saved

    def keep(self, page: PageSettings) -> None:
        """Keep changes that are not saved. Raises PageError."""
        write_page(page, self._draft(page.name))

    def save(self, page: PageSettings) -> None:
        """Write the page to its file. Raises PageError."""
        write_page(page, self._paths.setdefault(page.name, self._folder / f"{page.name}.toml"))
        self._draft(page.name).unlink(missing_ok=True)
        self._pages[page.name] = page

    def discard(self, page: PageSettings) -> PageSettings:
        """Forget the changes that were not saved, and return the page without them."""
        self._draft(page.name).unlink(missing_ok=True)
        return self._pages[page.name]

    def _draft(self, name: str) -> Path:
        return self._unsaved / f"{name}.toml"


def _changed_ns(path: Path) -> int:
    return path.stat().st_mtime_ns


def _made(tables: Mapping[str, Layout]) -> list[PageSettings]:
    """Return the built-in pages whose tables are all there, and a page for each table they do not read."""
    names = {name.lower() for name in tables}
    fitting = [name for name, (needed, _) in BUILT_IN.items() if needed <= names]
    pages = [_built_in(name) for name in fitting]
    covered = {table for name in fitting for each in BUILT_IN[name] for table in each}
    for name, layout in tables.items():
        if name.lower() not in covered:
            pages.append(page_of_table(name, layout, {page.name for page in pages}))
    return pages


def _built_in(name: str) -> PageSettings:
    text = (files("relaqs_dashboards") / "pages" / f"{name}.toml").read_text(encoding="utf-8")
    return parse_page(name, text)
