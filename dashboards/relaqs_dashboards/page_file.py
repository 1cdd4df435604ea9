"""Pages as TOML files: read, and written back in one step, so that a crash leaves the old page or the new."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relaqs_dashboards.settings import PageError, PageSettings, mended, panel_of, shown

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
        {name: value for name, value in asdict(panel).items() if value is not None} for panel in page.panels
    ]
    return tomli_w.dumps(entries, multiline_strings=True)


def write_page(page: PageSettings, path: Path) -> None:
    """Write the page, in one step. Raises PageError if the place cannot be written."""
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(page_text(page))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise PageError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
