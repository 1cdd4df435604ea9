"""A file has its old content or its new one, and nothing is left beside it."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from relaqs_engine.shared_files import drafts_of, replace_content, replacing

needs_bits = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permission bits")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_block_that_fails_leaves_the_old_content_alone(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_content(path, b"old")

    def fails_half_way() -> None:
        with replacing(path) as file:
            file.write(b"half of the n")
            file.flush()
            assert [(draft.parent, process) for draft, process in drafts_of(path)] == [
                (tmp_path, os.getpid())
            ]
            assert path.read_bytes() == b"old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails_half_way()
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["state"]


def test_a_place_that_takes_no_file_says_so_and_keeps_no_draft(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(OSError, match="state"):
        replace_content(tmp_path / "state", b"new")
    with pytest.raises(FileNotFoundError):
        replace_content(tmp_path / "none" / "state", b"new")
    assert names_in(tmp_path) == ["state"]


def test_threads_that_write_one_file_together_leave_one_whole_content(tmp_path: Path) -> None:
    contents = [bytes([letter]) * 200_000 for letter in b"abcdefgh"]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda content: replace_content(tmp_path / "state", content), contents * 3))
    assert (tmp_path / "state").read_bytes() in contents
    assert names_in(tmp_path) == ["state"]


@needs_bits
@pytest.mark.parametrize("bits", [0o600, 0o664, 0o444])
def test_who_may_read_a_file_stays(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    path.chmod(bits)
    replace_content(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", bits)


@needs_bits
def test_a_secret_is_its_owners_whatever_was_there(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with replacing(path, mode=0o600) as file:
        ((draft, _),) = drafts_of(path)
        assert draft.stat().st_mode & 0o777 == 0o600
        file.write(b"new")
    assert path.stat().st_mode & 0o777 == 0o600


@needs_bits
def test_a_new_file_is_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    replace_content(tmp_path / "state", b"new")
    assert (tmp_path / "state").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_link_goes_on_to_lead_to_the_file(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "link").symlink_to(place / "state")
    replace_content(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (place / "state").read_bytes() == b"new"
