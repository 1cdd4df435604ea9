"""A query in a notebook: a live chart by the face of an installed package, else the answer as it stands."""

from __future__ import annotations

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


def _as_it_stands(query: WatchableQuery) -> object:
    return query.latest or next(iter(query), query)
