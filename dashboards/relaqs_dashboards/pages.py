"""Which pages there are: those built in, those saved, those given, and one for each other table.

- A page is kept as a TOML file. It is read, and written back in one step, so that a crash leaves the old
  page or the new.
- A table without a page gets one from its columns' types and statistics. Nothing is read for it.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from relaqs_engine.shared_files import replace_content

from relaqs_dashboards.settings import (
    LONGEST_NAME,
    LONGEST_TITLE,
    MOST_PAGES,
    TEXT,
    PageError,
    PageSettings,
    PanelSettings,
    mended,
    panel_of,
    shown,
)

if TYPE_CHECKING:
    from relaqs import Table

LARGEST_BYTES = 1 << 20
# An escape for half of a surrogate pair, after a backslash that is not escaped itself.
_HALF = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u|U0000)[dD][89a-fA-F][0-9a-fA-F]{2}")


def read_page(path: Path) -> PageSettings:
    """Return the page in a TOML file, named as the file. Raises PageError.

    Characters that are refused of viewers do not keep a page from opening: U+FFFD stands in their place.
    """
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise PageError(f"{path} is larger than a page may be ({LARGEST_BYTES:,} bytes)")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PageError(f"{path} cannot be read: {error}") from error
    try:
        return parse_page(path.stem, text)
    except PageError as error:
        raise PageError(f"{path}: {error}") from None


def parse_page(name: str, text: str) -> PageSettings:
    """Return the page that the TOML text describes. Raises PageError."""
    try:
        entries = _parsed(text)
    except tomllib.TOMLDecodeError as error:
        raise PageError(f"it is not TOML: {error}") from None
    panels = entries.pop("panels", [])
    if not isinstance(panels, list) or not all(isinstance(panel, dict) for panel in panels):
        raise PageError("panels are written as [[panels]] tables")
    if unknown := set(entries) - {"title", "owner"}:
        raise PageError(f"a page has no {shown(min(unknown))}; it has a title, an owner and [[panels]]")
    numbered = [panel_of(_mended(panel), id=f"p{i}") for i, panel in enumerate(panels, 1)]
    whole = {"title": name} | _mended(entries)
    return PageSettings(name, whole["title"], tuple(numbered), whole.get("owner"))


def _parsed(text: str) -> dict[str, Any]:
    """Return the entries of TOML; half a character, which TOML refuses as an escape, becomes U+FFFD."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return tomllib.loads(_HALF.sub(r"\1\\ufffd", text))


def _mended(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {name: mended(value) if isinstance(value, str) else value for name, value in entries.items()}


def page_text(page: PageSettings) -> str:
    """Return the page as TOML; what is None is left out."""
    import tomli_w

    entries: dict[str, Any] = {"title": page.title}
    if page.owner is not None:
        entries["owner"] = page.owner
    entries["panels"] = [
        {
            name: value
            for name, value in asdict(panel).items()
            if value is not None and (name, value) != ("scale", "linear")
        }
        for panel in page.panels
    ]
    return tomli_w.dumps(entries, multiline_strings=True)


def write_page(page: PageSettings, path: Path) -> None:
    """Write the page, in one step. Raises PageError if the place cannot be written."""
    try:
        replace_content(path, page_text(page).encode())
    except OSError as error:
        raise PageError(f"{path} cannot be written: {error.strerror}") from error


TARGET = 0.02
LONGEST_COLUMN = LONGEST_TITLE - 20  # "mean of …" is a column, too
FEWEST_GROUPS, MOST_GROUPS = 2, 25
BINS = 30
FAR_BEYOND = 5  # times as long as most values' range: a histogram of all would be some bars at its end
MOST_NAMED = 8  # columns of one kind that have no panel
_LIKE_A_NUMBER = re.compile(r"[-+]?[$€£¥]? ?(\d{1,3}([.,' ]\d{3})+|\d+)([.,]\d+)? ?[$€£¥%]?")
_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL.*|DOUBLE|FLOAT|REAL")
_WHOLE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?")
TIMES = re.compile(r"DATE|TIMESTAMP.*")
_PART_OF_TIME = re.compile(
    r"(?i)(^|_)(year|quarter|month|week|day|hour|minute|second|time)$"
)  # means say little
_UNITS = ((3 * 365, "month"), (120, "week"), (3, "day"))  # of a time line, by the days that it spans


class Column(Protocol):
    """What a layout knows of one of its columns."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def minimum(self) -> object: ...

    @property
    def maximum(self) -> object: ...

    @property
    def distinct_count(self) -> int: ...

    @property
    def inlier_low(self) -> float | None: ...

    @property
    def inlier_high(self) -> float | None: ...


def page_of_table(name: str, layout: Table, taken: Collection[str] = ()) -> PageSettings:
    """Return the page of one table. taken: names that other pages have."""
    drafts = _filled(_panels(name, layout))
    drafts += _unshown(layout, [sql for _, sql, *_ in drafts])
    panels = [
        PanelSettings(f"p{i}", title[:LONGEST_TITLE], sql, chart, size, TARGET, x=x, y=y)
        for i, (title, sql, chart, size, x, y) in enumerate(drafts, 1)
    ]
    title = mended(name)[:LONGEST_TITLE].strip() or "table"
    return PageSettings(_page_name(name, taken), title, tuple(panels))


_Draft = tuple[str, str, str, str, str | None, str | None]  # title, sql, chart, size, x, y
_COLUMNS = {"small": 4, "wide": 8, "full": 12}  # of twelve


def _panels(name: str, layout: Table) -> Iterator[_Draft]:
    table = _quoted(name)
    if not _can_be_shown(name):
        return
    columns = [column for column in layout.columns if _can_be_shown(column.name)]
    groups = sorted(filter(_makes_groups, columns), key=lambda each: bool(_WHOLE.fullmatch(each.type)))
    measures = [column for column in columns if _is_measure(column, layout) and column not in groups]
    measures.sort(key=lambda each: bool(_PART_OF_TIME.search(each.name)))
    times = [column for column in columns if TIMES.fullmatch(column.type) and _days(column)]
    yield f"Rows of {name}", f"SELECT count(*) AS rows FROM {table}", "number", "small", None, "rows"
    for time in times[:1]:
        yield _over_time(table, time)
    for i in range(2):  # side by side: a wide one and a small one
        if groups[i:]:
            yield _counts(table, groups[i])
        if groups and measures[i:]:
            yield _means(table, groups[i % len(groups)], measures[i])
    for measure in measures[:2]:
        yield from _histogram(table, measure)
    if groups and len(measures) > 1:
        yield _scatter(table, groups[0], measures[0], measures[1])
    if groups and measures:
        yield _summary(table, groups[0], measures[:3])
    if not groups and not measures:
        yield f"Some rows of {name}", f"SELECT * FROM {table} LIMIT 20", "table", "full", None, None


def _unshown(layout: Table, queries: Sequence[str]) -> list[_Draft]:
    """Return a text that says which columns no panel reads, and why; nothing where one reads every column."""
    if not queries or any("SELECT *" in sql for sql in queries):
        return []
    named: dict[str, list[str]] = {}
    for column in layout.columns:
        if _can_be_shown(column.name) and not any(_quoted(column.name) in sql for sql in queries):
            named.setdefault(_why_unshown(column, layout), []).append(column.name)
    more = {why: f" and {len(names) - MOST_NAMED} more" for why, names in named.items()}
    parts = [
        f"{', '.join(names[:MOST_NAMED])}{more[why] if len(names) > MOST_NAMED else ''}: {why}"
        for why, names in named.items()
    ]
    return [("Columns without a panel", ". ".join(parts) + ".", TEXT, "full", None, None)] if parts else []


def _why_unshown(column: Column, layout: Table) -> str:
    is_text = column.type == "VARCHAR"
    if is_text and all(_LIKE_A_NUMBER.fullmatch(str(end)) for end in (column.minimum, column.maximum)):
        return "text that looks like numbers; a panel's SQL can make it numbers"
    if column.distinct_count < FEWEST_GROUPS:
        return "one value, or none"
    if TIMES.fullmatch(column.type) or _makes_groups(column) or _is_measure(column, layout):
        return "the panels above have the first columns of their kind"
    if _NUMBERS.fullmatch(column.type):
        return "taken for a key or a number of a row"
    return f"text of more than {MOST_GROUPS} values" if is_text else f"values of the type {column.type}"[:80]


def _filled(drafts: Iterable[_Draft]) -> list[_Draft]:
    """Return the panels with the last of each row as wide as its row has room; a number stays small.

    >>> [size for *_, size, _, _ in _filled([("Rows", "", "bars", "wide", "k", "rows")])]
    ['full']
    """
    rows: list[list[_Draft]] = []
    for draft in drafts:
        if not rows or sum(_COLUMNS[each[3]] for each in [*rows[-1], draft]) > _COLUMNS["full"]:
            rows.append([])
        rows[-1].append(draft)
    sizes = {columns: size for size, columns in _COLUMNS.items()}
    for row in rows:
        title, sql, chart, _, x, y = row[-1]
        room = sizes[_COLUMNS["full"] - sum(_COLUMNS[each[3]] for each in row[:-1])]
        if chart != "number":
            row[-1] = title, sql, chart, room, x, y
    return [draft for row in rows for draft in row]


def _counts(table: str, group: Column) -> _Draft:
    key = _quoted(group.name)
    sql = f"SELECT {key}, count(*) AS rows\nFROM {table}\nGROUP BY {key}\nORDER BY {key}"
    return f"Rows by {group.name}", sql, "bars", "wide", group.name, "rows"


def _means(table: str, group: Column, measure: Column) -> _Draft:
    key, value = _quoted(group.name), _quoted(measure.name)
    mean = f"mean of {measure.name}"
    sql = f"SELECT {key}, avg({value}) AS {_quoted(mean)}\nFROM {table}\nGROUP BY {key}\nORDER BY {key}"
    return f"Mean {measure.name} by {group.name}", sql, "bars", "small", group.name, mean


def _over_time(table: str, time: Column) -> _Draft:
    days = _days(time)
    unit = next((unit for least, unit in _UNITS if days > least), "hour")
    if time.type == "DATE" and unit == "hour":
        unit = "day"
    sql = (
        f"SELECT date_trunc('{unit}', {_quoted(time.name)}) AS {unit}, count(*) AS rows\n"
        f"FROM {table}\nGROUP BY 1\nORDER BY 1"
    )
    return f"Rows by {unit} of {time.name}", sql, "line", "wide", unit, "rows"


def _histogram(table: str, measure: Column) -> Iterator[_Draft]:
    low, high = measure.minimum, measure.maximum
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)) or low >= high:
        return
    value, title, within = _quoted(measure.name), f"Distribution of {measure.name}", "IS NOT NULL"
    width = _round_width((high - low) / BINS)
    if measure.inlier_low is not None and measure.inlier_high is not None:
        inner = max(low, measure.inlier_low), min(high, measure.inlier_high)
        if 0 < FAR_BEYOND * (inner[1] - inner[0]) < high - low:  # else all would be one bar
            width = _round_width((inner[1] - inner[0]) / BINS)
            low, high = width * math.floor(inner[0] / width), width * (math.floor(inner[1] / width) + 1)
            title = f"{title}, {low:.15g} to {high:.15g}"
            within = f">= {low:.15g} AND {value} < {high:.15g}"
    name = measure.name if measure.name.lower() != "rows" else "bin"
    sql = (
        f"SELECT floor({value} / {width:g}) * {width:g} AS {_quoted(name)}, count(*) AS rows\n"
        f"FROM {table}\nWHERE {value} {within}\nGROUP BY 1\nORDER BY 1"
    )
    yield title, sql, "histogram", "small", name, "rows"


def _scatter(table: str, group: Column, across: Column, up: Column) -> _Draft:
    key, x, y = _quoted(group.name), f"mean of {across.name}", f"mean of {up.name}"
    means = f"avg({_quoted(across.name)}) AS {_quoted(x)}, avg({_quoted(up.name)}) AS {_quoted(y)}"
    sql = f"SELECT {key}, {means}\nFROM {table}\nGROUP BY {key}"
    return f"{up.name} against {across.name}, by {group.name}", sql, "scatter", "small", x, y


def _summary(table: str, group: Column, measures: Sequence[Column]) -> _Draft:
    key = _quoted(group.name)
    means = "".join(f", avg({_quoted(each.name)}) AS {_quoted('mean of ' + each.name)}" for each in measures)
    sql = f"SELECT {key}, count(*) AS rows{means}\nFROM {table}\nGROUP BY {key}\nORDER BY rows DESC"
    return f"Summary by {group.name}", sql, "table", "full", None, None


def _can_be_shown(name: str) -> bool:
    """Whether a panel may name it."""
    return bool(name.strip()) and mended(name) == name and len(name) <= LONGEST_COLUMN


def _makes_groups(column: Column) -> bool:
    is_text_or_whole = not _NUMBERS.fullmatch(column.type) or _WHOLE.fullmatch(column.type)
    return (
        FEWEST_GROUPS <= column.distinct_count <= MOST_GROUPS
        and bool(is_text_or_whole)
        and not TIMES.fullmatch(column.type)
    )


def _is_measure(column: Column, layout: Table) -> bool:
    """Whether a mean of it says something: numbers, but not those that count or name the rows."""
    is_key = column.name in layout.cluster_key or re.search(r"(?i)(^|_)(id|key)$|key$", column.name)
    names_rows = _WHOLE.fullmatch(column.type) and column.distinct_count > 0.8 * layout.row_count
    return bool(_NUMBERS.fullmatch(column.type)) and column.distinct_count > 1 and not (is_key or names_rows)


def _days(column: Column) -> int:
    """Return the days from the first to the last value; 0 where they are not known."""
    first, last = (day_of(value) for value in (column.minimum, column.maximum))
    if first is None or last is None:
        return 0
    return (dt.date.fromisoformat(last) - dt.date.fromisoformat(first)).days


def day_of(moment: object) -> str | None:
    """Return the day of a date or moment as ISO text, None for anything else."""
    try:
        return dt.date.fromisoformat(str(moment)[:10]).isoformat()
    except ValueError:
        return None


def _round_width(width: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= width * 0.999)


def _page_name(table: str, taken: Collection[str]) -> str:
    base = re.sub(r"[^a-z0-9_-]+", "-", table.lower()).strip("-_")[: LONGEST_NAME - 4] or "table"
    return next(name for i in range(1, 1000) if (name := base if i == 1 else f"{base}-{i}") not in taken)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


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

    def __init__(self, folder: Path, tables: Mapping[str, Table], given: tuple[Path, ...] = ()) -> None:
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

    def add(self, title: str) -> PageSettings:
        """Return a new page without panels, after writing it. Raises PageError."""
        if len(self._pages) >= MOST_PAGES:
            raise PageError(
                f"there are {len(self._pages)} pages, the most there can be; remove the file of one"
            )
        page = PageSettings(_page_name(title, self._pages), title, ())
        self.save(page)
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


def _made(tables: Mapping[str, Table]) -> list[PageSettings]:
    """Return the built-in pages whose tables are all there, and one for each other, the largest first."""
    names = {name.lower() for name in tables}
    fitting = [name for name, (needed, _) in BUILT_IN.items() if needed <= names]
    pages = [_built_in(name) for name in fitting]
    covered = {table for name in fitting for each in BUILT_IN[name] for table in each}
    for name, layout in sorted(tables.items(), key=lambda each: -each[1].row_count):
        if name.lower() not in covered:
            pages.append(page_of_table(name, layout, {page.name for page in pages}))
    return pages


def _built_in(name: str) -> PageSettings:
    text = (files("relaqs_dashboards") / "pages" / f"{name}.toml").read_text(encoding="utf-8")
    return parse_page(name, text)
