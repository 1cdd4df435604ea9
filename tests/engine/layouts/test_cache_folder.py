"""The cache: one place for one source, what is in it, what is removed from it, and what it may take."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.cache import Cache, CacheUse, Opening
from relaqs_engine.layouts.manifest import Layout

ROWS = pa.table({"id": range(20_000)})
TraceFunction = Callable[[FrameType, str, Any], Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of two files."""
    folder = tmp_path / "trips"
    folder.mkdir()
    for name in ("a.parquet", "b.parquet"):
        pq.write_table(ROWS, folder / name)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def use(cache: Cache) -> CacheUse:
    """Return what a session uses that is open during the test."""
    return CacheUse(cache)


def lay_out(cache: Cache, source: str | Path, use: CacheUse | None = None, table: str = "trips") -> Layout:
    """Return a layout from the cache. Without `use` the session that opened it is closed again."""
    how = Opening(use or CacheUse(cache))
    return Catalog.of_sources({table: source}, how, lay_out=True).table(table)


def opened(cache: Cache, source: str | Path, table: str = "trips") -> Layout:
    return Catalog.of_sources({table: source}, Opening(CacheUse(cache))).table(table)


def states(cache: Cache) -> list[str]:
    return [entry.state for entry in cache.entries()]


def files_in(cache: Cache) -> list[Path]:
    return [path for path in cache.directory.rglob("*") if path.is_file()]


def test_files_under_several_names_are_stored_once(
    cache: Cache, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lay_out(cache, folder)
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    for source in ("trips", folder / "*.parquet", "trips/*", "link", tmp_path / "link" / "?.parquet"):
        other = opened(cache, source, table="rides")
        assert (other.table, other.directory) == ("rides", first.directory)
    (entry,) = cache.entries()
    assert (entry.state, entry.row_count, len(entry.names)) == ("current", 40_000, 5)


def test_a_file_named_through_a_folder_that_is_a_column_is_another_table(
    cache: Cache, folder: Path, tmp_path: Path
) -> None:
    lay_out(cache, folder / "a.parquet")
    link = tmp_path / "year=2013" / "a.parquet"
    link.parent.mkdir()
    link.symlink_to(folder / "a.parquet")
    assert [column.name for column in opened(cache, link).columns] == ["id", "year"]


def test_entries_say_what_they_are(cache: Cache, folder: Path, use: CacheUse) -> None:
    layout = lay_out(cache, folder, use)
    (entry,) = cache.entries()
    on_disk = [path.stat().st_size for path in layout.directory.rglob("*") if path.is_file()]
    assert (entry.path, entry.kind, entry.source) == (layout.directory, "layout", str(folder))
    assert (entry.row_count, entry.byte_count, entry.is_in_use) == (40_000, sum(on_disk), True)
    assert entry.made_at <= entry.used_at


def test_sources_that_changed_or_are_gone_make_an_entry_stale(cache: Cache, folder: Path) -> None:
    lay_out(cache, folder)
    pq.write_table(ROWS, folder / "c.parquet")
    assert states(cache) == ["changed"]  # there is a file more
    (folder / "c.parquet").unlink()
    assert states(cache) == ["current"]
    os.utime(folder / "b.parquet", ns=(0, 1))
    assert states(cache) == ["changed"]
    for file in folder.iterdir():
        file.unlink()
    assert states(cache) == ["gone"]


def test_only_the_newest_state_of_a_growing_folder_is_kept(cache: Cache, folder: Path) -> None:
    old = lay_out(cache, folder)
    pq.write_table(ROWS, folder / "c.parquet")
    new = lay_out(cache, folder)
    assert (new.row_count, [entry.path for entry in cache.entries()]) == (60_000, [new.directory])
    assert not old.directory.exists()


@pytest.mark.parametrize("by", ["trips", "the source", "the entry"])
def test_an_entry_is_found_by_what_people_call_it(cache: Cache, folder: Path, by: str) -> None:
    layout = lay_out(cache, folder, table="t")
    lay_out(cache, folder / "a.parquet")
    names = {"the source": str(folder), "the entry": str(layout.directory)}
    assert [entry.path for entry in cache.find(names.get(by, by))] == [layout.directory]
    with pytest.raises(LayoutError, match="there is nothing of 'nope' in the cache"):
        cache.find("trips", "nope")


def test_what_is_removed_leaves_nothing(cache: Cache, folder: Path) -> None:
    lay_out(cache, folder)
    entries = cache.entries()
    assert cache.remove(entries) == entries
    assert list(cache.directory.iterdir()) == []
    assert cache.remove(entries) == entries  # gone already


INTERRUPTED = ("cache_folder.py", "pathlib.py", "shutil.py")


class Interruption:
    """Raises KeyboardInterrupt at one of the lines that run in these files, as ctrl-C may."""

    def __init__(self, line: int) -> None:
        self._left = line
        self.came = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        if Path(frame.f_code.co_filename).name not in INTERRUPTED:
            return None
        return self._at_a_line

    def _at_a_line(self, frame: FrameType, event: str, argument: object) -> TraceFunction:
        self._left -= 1
        if self._left == 0:
            self.came = True
            sys.settrace(None)
            raise KeyboardInterrupt
        return self._at_a_line


def test_ctrl_c_in_a_removal_leaves_the_whole_entry_or_nothing(cache: Cache, folder: Path) -> None:
    lay_out(cache, folder)
    whole = {path.relative_to(cache.directory) for path in files_in(cache)}
    for line in itertools.count(1, 7):
        trial = Cache(cache.directory.with_name(f"trial {line}"))
        shutil.copytree(cache.directory, trial.directory)
        entries, interruption = trial.entries(), Interruption(line)
        before = sys.gettrace()
        sys.settrace(interruption)
        try:
            trial.remove(entries)
        except (KeyboardInterrupt, OSError):  # `rmtree` may close a folder twice then
            assert interruption.came
        finally:
            sys.settrace(before)
        assert {path.relative_to(trial.directory) for path in files_in(trial)} in (set(), whole), line
        if not interruption.came:
            break
    assert line > 100


def test_what_an_open_session_reads_is_not_removed(cache: Cache, folder: Path, use: CacheUse) -> None:
    lay_out(cache, folder, use)
    assert (cache.remove(cache.entries()), states(cache)) == ((), ["current"])
    use.release()
    assert len(cache.remove(cache.entries())) == 1


def test_what_another_process_reads_stays_until_that_is_dead(cache: Cache, folder: Path) -> None:
    lay_out(cache, folder)
    program = """
import sys
from relaqs_engine.layouts.cache import Opening, opened_table
from relaqs_engine.layouts.cache import Cache
from relaqs_engine.layouts.cache import CacheUse
how = Opening(CacheUse(Cache(sys.argv[1])))
opened_table("trips", sys.argv[2], how)
print("reading", flush=True)
sys.stdin.read()
"""
    reader = subprocess.Popen(
        [sys.executable, "-c", program, str(cache.directory), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reading\n"
        assert cache.remove(cache.entries()) == ()
        reader.send_signal(signal.SIGKILL)
    assert len(cache.remove(cache.entries())) == 1


def test_beyond_the_limit_the_least_recently_used_goes(cache: Cache, folder: Path) -> None:
    first, second = lay_out(cache, folder / "a.parquet"), lay_out(cache, folder / "b.parquet")
    size, new = cache.entries()[0].byte_count, folder / "c.parquet"
    pq.write_table(ROWS, new)
    assert cache.set_limit(size + new.stat().st_size + size // 2) == ()
    opened(cache, folder / "a.parquet")  # so `second` was not used for the longest time
    third = lay_out(cache, new)
    assert [entry.path for entry in cache.entries()] == [third.directory, first.directory]
    assert not second.directory.exists()
    assert [entry.path for entry in cache.set_limit(size // 2)] == [first.directory, third.directory]


def test_what_cannot_fit_is_refused_and_nothing_goes_for_it(
    cache: Cache, folder: Path, use: CacheUse
) -> None:
    lay_out(cache, folder / "a.parquet")
    used = lay_out(cache, folder / "b.parquet", use)
    size = sum(entry.byte_count for entry in cache.entries())
    cache.set_limit(size + 10_000)
    pq.write_table(pa.table({"text": [str(i) * 3 for i in range(80_000)]}), folder / "large.parquet")
    with pytest.raises(LayoutError, match=r"needs about .* is limited to .*, where open sessions use"):
        lay_out(cache, folder / "large.parquet")
    assert len(cache.entries()) == 2
    assert cache.set_limit(1_000)[0].path != used.directory
    assert [entry.path for entry in cache.entries()] == [used.directory]


def test_a_layout_that_turns_out_too_large_does_not_stay(cache: Cache, folder: Path) -> None:
    pq.write_table(
        pa.table({"same": [1] * 1_000_000}), folder / "small.parquet"
    )  # a layout has a block a row
    cache.set_limit((folder / "small.parquet").stat().st_size + 1_000)
    with pytest.raises(LayoutError, match="is limited to"):
        lay_out(cache, folder / "small.parquet")
    assert [path.name for path in files_in(cache)] == ["limit.json"]


def test_a_limit_is_kept_until_it_is_lifted(cache: Cache) -> None:
    assert cache.limit_bytes is None
    cache.set_limit(5)
    assert Cache(cache.directory).limit_bytes == 5
    cache.set_limit(None)
    assert cache.limit_bytes is None
    (cache.directory / "limit.json").write_text("{")
    with pytest.raises(LayoutError, match="holds no limit; set one with `relaqs cache limit`"):
        cache.limit_bytes  # noqa: B018


def test_the_next_start_removes_what_was_left(cache: Cache, folder: Path) -> None:
    layout = lay_out(cache, folder)
    home = layout.directory.parent
    half = home.with_name("half-0123456789abcdef")
    for left in (
        cache.directory / ".removing-0123456789abcdef",
        home / ".copying-1",
        layout.directory / ".writing-0123456789abcdef",
        half / "layout" / ".writing-0123456789abcdef",
        half / ".copying-2",
    ):
        left.mkdir(parents=True)
        (left / "rubbish").write_text("x")
    before = {path for path in files_in(cache) if path.name != "rubbish"}
    assert [entry.path for entry in cache.entries()] == [layout.directory]
    assert opened(cache, folder).directory == layout.directory
    assert (set(files_in(cache)), half.exists()) == (before, False)


def test_what_a_process_is_at_work_on_is_not_swept(cache: Cache, folder: Path) -> None:
    swept: list[str] = []

    def sweep(message: str) -> None:
        cache.sweep()
        swept.append(message)

    Catalog.of_sources({"trips": folder}, Opening(CacheUse(cache), sweep), lay_out=True)
    assert (len(swept), states(cache)) == (1, ["current"])


def test_what_another_version_made_is_shown_as_such(cache: Cache) -> None:
    other = cache.directory / "trips-0123456789abcdef" / "fedcba9876543210" / "trips"
    other.mkdir(parents=True)
    (other / "manifest.json").write_text("x")
    cache.sweep()
    (entry,) = cache.entries()
    assert (entry.kind, entry.state, entry.row_count, entry.byte_count) == ("other", "unknown", None, 1)
    cache.remove(cache.find("trips"))
    assert list(cache.directory.iterdir()) == []


@pytest.mark.parametrize("kind", ["layout", "copy"])
def test_a_file_that_may_grow_no_larger_leaves_nothing(cache: Cache, tmp_path: Path, kind: str) -> None:
    source = tmp_path / "trips.parquet"
    pq.write_table(pa.table({"text": [f"{i * 7919 % 200_000}" for i in range(200_000)]}), source)
    if kind == "copy":
        source = source.with_suffix(".csv")
        source.write_text("text\n" + "\n".join(f"{i * 7919 % 200_000}" for i in range(200_000)))
    program = """
import resource, sys
from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.cache import Opening
from relaqs_engine.layouts.cache import Cache
from relaqs_engine.layouts.cache import CacheUse
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
Catalog.of_sources({"trips": sys.argv[2]}, Opening(CacheUse(Cache(sys.argv[1]))), lay_out=True)
"""
    arguments = [sys.executable, "-c", program, str(cache.directory), str(source)]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert "LayoutError" in ended.stderr
    assert "a file became larger than this system lets a process write" in ended.stderr
    assert files_in(cache) == []


def test_a_cache_that_cannot_be_written_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        LayoutError, match=r"the cache .*/file/cache cannot be written: Not a directory; name"
    ):
        lay_out(Cache(tmp_path / "file" / "cache"), folder)
