"""The page of the package on an index: the README, with links that work outside of the repository.

A page of an index has no files beside it. So a link to a file becomes one to where the source is published:
RELAQS_SOURCE, at the state RELAQS_REVISION. A build that is not told that address keeps the words of links,
and leaves pictures out.

    RELAQS_SOURCE=https://example.org/team/relaqs RELAQS_REVISION=v0.1.0 python -m build
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


class PackagePage(MetadataHookInterface):
    """Writes the readme into the metadata of a build."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme, and where the source is."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        source, revision = os.environ.get("RELAQS_SOURCE", ""), os.environ.get("RELAQS_REVISION", "main")
        metadata["readme"] = {"content-type": "text/markdown", "text": page(text, source, revision)}
        metadata["urls"] = addresses(source, revision)


def addresses(source: str, revision: str) -> dict[str, str]:
    """Return where the source and its documents are, by what an index calls them; none if it is unknown.

    >>> addresses("https://example.org/relaqs", "v1")["Documentation"]
    'https://example.org/relaqs/blob/v1/docs/index.md'
    """
    if not source:
        return {}
    root = source.rstrip("/")
    blob = f"{root}/blob/{revision}"
    return {
        "Source": root,
        "Documentation": f"{blob}/docs/index.md",
        "Changelog": f"{blob}/CHANGELOG.md",
    }


def page(readme: str, source: str, revision: str) -> str:
    """Return a readme whose links name no file beside it.

    Args:
        readme: in Markdown.
        source: the https address of the repository, "" where it is unknown.
        revision: a branch, a tag or a commit.

    >>> page("[The map](ARCHITECTURE.md)", "https://example.org/relaqs", "v1")
    '[The map](https://example.org/relaqs/blob/v1/ARCHITECTURE.md)'
    >>> page("See [the map](ARCHITECTURE.md).", "", "v1")
    'See the map.'
    """

    def outside(match: re.Match[str]) -> str:
        mark, words, path = match.groups()
        if not source:
            return "" if mark else words
        return f"{mark}[{words}]({source.rstrip('/')}/{'raw' if mark else 'blob'}/{revision}/{path})"

    return _LINK.sub(outside, readme)


def get_metadata_hook() -> type[MetadataHookInterface]:
    """Return the hook that hatchling runs."""
    return PackagePage
