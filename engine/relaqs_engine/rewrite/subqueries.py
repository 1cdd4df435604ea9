"""Rule: subqueries in conditions and expressions may read static tables only."""

from __future__ import annotations

from sqlglot import exp

from relaqs_engine.rewrite.draft import Draft, NotOnlineError


def check_subqueries(draft: Draft) -> Draft:
    """Return the draft unchanged: a subquery over static tables has its final value from the start."""
    direct = {id(source.node) for source in draft.sources}
    for node in draft.select.walk():
        if not isinstance(node, exp.Table) or id(node) in direct:
            continue
        if not isinstance(node.this, exp.Identifier):
            raise NotOnlineError(f"{node.sql()} is not a table of the catalog")
        if draft.catalog.table(node.name).is_sampled:
            raise NotOnlineError(f"a subquery reads the sampled table {node.name}")
    return draft
