"""The names that the SQL of a plan uses: tables, columns, parameters, and marks that a task fills in."""

from __future__ import annotations

# The table of partial rows. Each of its rows carries the count of joined rows behind it and its block.
STATE = "state"
ROWS = "m"
BLOCK = "r"
# The outlier index adds rows to the state in this block. They are no sample, so no error bar is made of them.
OUTLIER_BLOCK = -1
# The table of the groups that were read from an index of heavy units, in the columns of the state.
HEAVY = "heavy_groups"
FAN_OUT = "fan_out"
# The factor that turns a total over the rows scanned into one over the table: rows in the table / rows
# scanned. In the SQL of an estimate it is called `scale`. It is a parameter of the prepared statement.
SCALE = "scale"
SCALE_PARAMETER = "CAST($1 AS DOUBLE)"
UNIT_SCALE_PARAMETER = "CAST($2 AS DOUBLE)"  # units of the table / units scanned
# Of COUNT(DISTINCT x): a value of x, and the sampling units that have it, 1 or more (how many more is not
# always known). Merged per group these are the distinct values seen, those seen in one unit only, and of all
# rows with a value the share whose value was seen in one unit only.
VALUE = "x"
UNITS = "u"
DISTINCT_SEEN = "distinct_seen"
DISTINCT_ONCE = "distinct_once"
DISTINCT_TWICE = "distinct_twice"
DISTINCT_ESTIMATE = "distinct_estimate"
# In the SQL around answers: which row of which answer it is, and the joined rows behind it.
GROUP = "relaqs_group"
GROUP_ROWS = "relaqs_rows"
# A ranking reads this many groups that follow those it shows, and this many that HAVING leaves out.
RIVALS = 500
# Where LIMIT picks groups: how many of those seen come before a group or with it by the keys of ORDER BY, how
# many of these were seen in one sampling unit at most, and whether no group can come before it.
BEFORE = "relaqs_before"
BEFORE_ONCE = "relaqs_before_once"
IS_FIRST = "relaqs_is_first"
# The one-row table of the values that stages share with every group, and the scale that belongs to them.
SHARED = "shared"
SHARED_SCALE = "shared_scale"
# Text literals that stand for the ends of a range until a task is given numbers. They are cast in the SQL.
RANGE_LOW = "range low"
RANGE_HIGH = "range high"


def outlier_column(name: str) -> str:
    """Return the column of an estimate's groups with what outliers add to a basis column, unscaled."""
    return f"outlier_{name}"


def moves_column(position: int) -> str:
    """Return the column with the most that one sampled row could move the output at a position."""
    return f"relaqs_moves_{position}"


def margin_column(index: int) -> str:
    """Return the column with how far apart the sides of a comparison are, around answers."""
    return f"relaqs_margin_{index}"
