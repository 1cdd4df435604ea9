"""A query in a notebook: a live chart by the face of an installed package, else the answer as it stands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relaqs.arguments import ArgumentError
from relaqs.plugins import MissingPackageError, Plugins

if TYPE_CHECKING:
    from relaqs.rendering.drawable import WatchableQuery

FACES: Plugins[Callable[..., object]] = Plugins("relaqs.notebook", "face for notebooks")
DEFAULT_FACE = "dashboard"


def display(query: WatchableQuery, *, face: str = DEFAULT_FACE, **look: Any) -> object:
    """Return what a notebook shows of the query: a widget that follows it, or its newest snapshot.

    It is the newest snapshot where the packages that draw widgets are not installed.

    Args:
        query: the query to show.
        face: the name of the entry point in the group `relaqs.notebook` that makes the widget.
        look: passed on to the face.

    Raises:
        ArgumentError: no installed package has this face.
        PluginError: the face cannot be loaded.
    """
    try:
        widget = FACES[face]
    except MissingPackageError:
        return _as_it_stands(query)
    except KeyError:
        if face == DEFAULT_FACE:
            return _as_it_stands(query)
        raise ArgumentError(
            f"there is no face {face!r} for notebooks; the installed ones are {', '.join(FACES) or 'none'}"
        ) from None
    return widget(query, **look)


def cell_forms(query: WatchableQuery) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the forms in which a cell can show the query, by media type, and their metadata.

    They are a live panel, and the newest snapshot as HTML and as text. A shell that shows nothing but text
    gets text alone, and no widget is made for it.
    """
    if _shows_text_only():
        return _still_forms(query), {}
    shown = display(query)
    bundle = getattr(shown, "_repr_mimebundle_", None)
    data, metadata = _with_metadata(bundle() if bundle is not None else {})
    return data | _still_forms(query), metadata


def _still_forms(query: WatchableQuery) -> dict[str, Any]:
    if (newest := query.latest) is None:
        return {"text/plain": repr(query)}
    from relaqs.rendering import html, terminal

    return {"text/html": html.render(newest), "text/plain": terminal.plain_text(newest)}


def _with_metadata(bundle: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a bundle and its metadata: some widgets give both, others the first alone."""
    return bundle if isinstance(bundle, tuple) else (bundle or {}, {})


def _shows_text_only() -> bool:
    """Return whether the shell around us is IPython in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and shell.display_formatter.active_types == ["text/plain"]


def _as_it_stands(query: WatchableQuery) -> object:
    return query.latest or next(iter(query), query)
