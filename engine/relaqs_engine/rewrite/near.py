"""Rule: write the query of the groups that HAVING leaves out of a ranking for now.

Such a group may still pass HAVING later, and may then come before the groups that are shown.
"""

from __future__ import annotations

from relaqs_engine.plans.names import RIVALS
from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.rewrite.membership import fixed_conditions
from relaqs_engine.rewrite.render import attempted, valued
from relaqs_engine.sql.parse import DIALECT


def near_sql(draft: Draft) -> str:
    """Return the query of the groups that fail HAVING so far, those nearest to its thresholds first.

    It has the columns of the estimate. It is "" where nothing is ranked, or where no estimate decides.

    >>> from relaqs_engine.planning.example import after, shown
    >>> from relaqs_engine.rewrite.kept_values import check_kept_values
    >>> sql = "SELECT zone, avg(km) AS a FROM trips GROUP BY 1 HAVING count(*) > 99 ORDER BY a DESC LIMIT 3"
    >>> print(shown(near_sql(after(check_kept_values, sql))))
    SELECT ... WHERE (TRY((CAST(b2 AS DOUBLE) * scale) > 99)) IS NOT TRUE)
    ORDER BY greatest(CASE WHEN TRY((CAST(b2 AS DOUBLE) * scale) > 99) THEN 0.0
                      ELSE abs(d0 - (99.0)) END) NULLS FIRST LIMIT 500
    """
    rules = draft.membership
    margins = [(i, each) for i, each in enumerate(rules.deciders) if not each.ranks]
    tree = attempted(draft.estimate_tree)
    if tree is None or rules.ranking is None or not margins:
        return ""
    fails = f"({tree.args['having'].this.sql(DIALECT)}) IS NOT TRUE"
    fixed = (condition.sql(DIALECT) for condition in fixed_conditions(draft))
    gaps = (
        f"CASE WHEN TRY({each.passes}) THEN 0.0 ELSE abs(d{i} - ({each.threshold!r})) END"
        for i, each in margins
    )
    groups = valued(draft, tree, " AND ".join([fails, *fixed]), estimated=True)
    return f"{groups} ORDER BY greatest({', '.join(gaps)}) NULLS FIRST LIMIT {RIVALS}"
