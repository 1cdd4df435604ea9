"""Rule: where the error bars come from, and whether groups are complete as soon as they are seen."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from relaqs_engine.plan import Method, OutputKind
from relaqs_engine.rewrite.draft import Draft, Source, column_pair


def choose_method(draft: Draft) -> Draft:
    """Return the draft with its estimation method."""
    local = any(_keys_hold_cluster_key(draft, source) for source in draft.streams)
    estimated = any(output.kind is OutputKind.ESTIMATE for output in draft.outputs)
    method = Method.REPLICATES if draft.intervals and estimated and not local else Method.NONE
    every_row = len(draft.sources) == 1 and not draft.conjuncts and not draft.keys
    return replace(draft, method=method, groups_are_local=local, counts_every_row=every_row)


def _keys_hold_cluster_key(draft: Draft, source: Source) -> bool:
    """Whether each group's rows lie in one partition: its keys contain the cluster key of a stream."""
    if source.layout is None or not source.layout.cluster_key or source.nullable:
        return False
    grouped = {(key.table, key.name.lower()) for key in draft.keys if isinstance(key, exp.Column)}
    for left, right in filter(None, map(column_pair, draft.conjuncts)):
        pair = {(left.table, left.name.lower()), (right.table, right.name.lower())}
        if pair & grouped:
            grouped |= pair
    return all((source.alias, column.lower()) in grouped for column in source.layout.cluster_key)
