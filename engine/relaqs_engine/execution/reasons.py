"""Why a number is not certified, in words: what is decided cell by cell, as a code, and the sentence for it.

A code is set where the decision is made: by the statistics of a cell (`relaqs_bootstrap.Doubt`), where the
row of a cell may leave the answer, where totals are not scaled. What the plan knows beforehand of a column is
in `OutputColumn.never_certified`.
"""

from __future__ import annotations

from enum import IntEnum

from relaqs_bootstrap import Doubt
from relaqs_bootstrap.certify import MIN_ROWS, MIN_ROWS_OF_SHARE


class Reason(IntEnum):
    """Why a cell is not certified. NONE: it is. The first ones are those of `Doubt`."""

    NONE = Doubt.NONE
    FEW_ROWS = Doubt.FEW_ROWS
    NO_NUMBER = Doubt.NO_NUMBER
    ALIKE = Doubt.ALIKE
    UNBOUNDED = Doubt.UNBOUNDED
    LARGE_ROW = Doubt.LARGE_ROW
    NEVER = 10  # the plan says why
    SO_FAR = 11
    MAY_LEAVE = 12
    BARELY_STAYS = 13
    AS_SEEN = 14
    FEW_PARTS = 15
    FEW_ROW_GROUPS = 16
    TOO_WIDE = 17
    UNDECIDED = 18
    FAR_OUT = 19
    MANY_GROUPS = 20
    FEW_UNITS = 21
    LARGE_ROW_APPENDED = 22
    BOUND = 23  # a MIN or MAX so far: it is shown as the bound that it is
    LARGE_UNIT = 24
    UNLIKE_ROW_GROUPS = 25
    GROUPS_MISSING = 26
    FEW_ROWS_OF_SHARE = 27


_MORE = "reading on helps"
_LARGE = "one large value that was not read yet could move it beyond its error"
_TEXTS = {
    Reason.FEW_ROWS: f"fewer than {MIN_ROWS} of its rows were read so far; {_MORE}",
    Reason.FEW_ROWS_OF_SHARE: f"fewer than {MIN_ROWS_OF_SHARE} of its rows were read so far, and it is "
    f"compared with other groups; {_MORE}",
    Reason.NO_NUMBER: "it or its error is no finite number so far, as where there is NaN, infinity or no "
    "value; isfinite() in WHERE leaves such rows out",
    Reason.ALIKE: f"all that was read so far agrees, and what was not read may differ; {_MORE}",
    Reason.UNBOUNDED: "nothing bounds what a row that was not read may add to it",
    Reason.LARGE_ROW: f"{_LARGE}; {_MORE}",
    Reason.LARGE_ROW_APPENDED: f"{_LARGE}; {_MORE}, and so may `relaqs compact`: rows were appended, and "
    "large values have no index of their own",
    Reason.LARGE_UNIT: "one value of the cluster key that was not read yet may have many rows, and could "
    f"move it beyond its error; {_MORE}",
    Reason.SO_FAR: "it is the value of the rows read so far, and has no interval",
    Reason.MAY_LEAVE: f"its row may still leave the answer; {_MORE}",
    Reason.BARELY_STAYS: f"its row only just stays in the answer, which may be luck; {_MORE}",
    Reason.AS_SEEN: f"totals are as seen, not scaled, as long as a group has few rows; {_MORE}",
    Reason.FEW_PARTS: f"one part of the table was read so far, and parts are compared; {_MORE}",
    Reason.FEW_ROW_GROUPS: f"it was met in few row groups of the files so far; {_MORE}, and so does laying "
    "the table out (`relaqs shuffle`)",
    Reason.UNLIKE_ROW_GROUPS: "by their footers the row groups of the files are unlike, and too few were "
    f"read to tell of all; {_MORE}, and so does laying the table out (`relaqs shuffle`)",
    Reason.TOO_WIDE: f"its error is still too large for a function that multiplies errors; {_MORE}",
    Reason.UNDECIDED: f"it depends on a comparison of estimates that are still too close; {_MORE}",
    Reason.FAR_OUT: f"too few values on one side of it were read so far; {_MORE}",
    Reason.MANY_GROUPS: "quantiles of so many groups have no intervals; those of fewer groups have",
    Reason.GROUPS_MISSING: f"a group that was not met yet, or has few rows so far, could change it; {_MORE}",
    Reason.FEW_UNITS: f"the rows of one cluster key could have all of these values; {_MORE}",
}


def text_of(code: int) -> str:
    """Return why a cell is not certified, by its code.

    >>> text_of(Reason.FEW_ROWS)
    'fewer than 10 of its rows were read so far; reading on helps'
    """
    return _TEXTS.get(Reason(code), "it is not certified so far")
