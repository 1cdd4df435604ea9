"""The table of policies in each setting of the records, as `relaqs simulate` and `schedule` print it."""

from __future__ import annotations

from collections.abc import Sequence

from relaqs_lab.cli.comparison import CAPTION, HEADINGS, cells, title_of
from relaqs_lab.records import ScheduleRun
from relaqs_lab.records.comparison import compare
from relaqs_lab.report.exhibit import PolicyTable, PolicyTables, commands_of

SOURCE = "ReLAQS thesis, figures 4.6 to 4.8, and SLAQ: in numbers"


def policy_tables(groups: Sequence[Sequence[ScheduleRun]], source: str) -> PolicyTables:
    """Return one table a setting.

    Args:
        groups: the runs of each, see `settings`.
        source: of the runs.
    """
    return PolicyTables(
        name=f"policies-{source}",
        title=table_title(source),
        source=SOURCE,
        caption=CAPTION,
        headings=HEADINGS,
        tables=tuple(
            PolicyTable(
                title=title_of(group),
                rows=tuple(cells(row) for row in compare(group)),
                commands=commands_of([run.circumstances for run in group]),
            )
            for group in groups
        ),
    )


def table_title(source: str) -> str:
    return f"Policies side by side, {source}"
