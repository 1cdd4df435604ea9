"""A live chart of a query where the dashboard's package and anywidget are; else the answer as it stands.

The dashboard lies above this package: it is looked up here, when somebody asks for it, and nowhere else but
in the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relaqs.queries.online_query import OnlineQuery


def display(query: OnlineQuery, **look: Any) -> object:
    """Return what a notebook shows of the query: a widget that follows it, or its newest snapshot."""
    try:
        from relaqs_dashboards.notebook import widget
    except ModuleNotFoundError as missing:
        if missing.name not in ("anywidget", "traitlets"):
            raise
        return query.latest or next(iter(query), query)
    return widget(query, **look)
