"""Exhibits of jobs that shared a cluster, live or simulated (thesis 4.6 to 4.8).

Above them stands the table of policies in each setting of the records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.policies import POLICIES
from relaqs_lab.cli.studies import CAPTION, HEADINGS, cells, either, policy_label, signed, title_of
from relaqs_lab.records import ScheduleRun
from relaqs_lab.records.comparison import REFERENCE, Row, compare, settings
from relaqs_lab.records.trace import GROUPS, LEVELS
from relaqs_lab.report.exhibit import (
    NOT_GIVEN,
    SERIES,
    Exhibit,
    Finding,
    Missing,
    Palette,
    Part,
    PolicyTable,
    PolicyTables,
    commands_of,
    in_percent,
    picture,
    shared_legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


THESIS_CHANGES = {0.7: "−47 %", 0.9: "−21 %"}  # of the time, by ReLAQS, in THESIS_SETTING
THESIS_SETTING = (256, 12, 120)  # cores, queries, seconds between arrivals
POINTS = 150
THESIS_ARRIVALS = (10, 40, 120)  # seconds between, in its figure 4.7
MOST_PANELS = 3
COMMANDS = {"live": "relaqs tpch schedule --data DIR", "simulated": "relaqs simulate"}
ARRIVALS = {"live": "0.1,0.3,1", "simulated": "10,40,120"}
COMMON = ("index", "max_sum", "fifo", "least_attained_service")  # they have the colours furthest apart
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "h")


def shared(runs: Sequence[ScheduleRun], source: str) -> list[Part]:
    """Return the exhibits of live or of simulated runs."""
    own = in_order([run for run in runs if run.source == source])
    if not own:
        named = (
            ("Progress and error over time", "4.6"),
            ("Time to reduce errors", "4.7"),
            ("Time to 90 %", "4.8"),
        )
        figures = [
            Missing(f"{title}, {source}", f"ReLAQS thesis, figure {number}", COMMANDS[source])
            for title, number in named
        ]
        return [*figures, Missing(table_title(source), SOURCE, COMMANDS[source])]
    every = settings(own)
    alike = most_alike(every)
    groups, others = in_panels(alike), len(every) - len(alike)
    left_out = [group for group in alike if group not in groups]
    exhibits: list[Part] = [
        _over_time(groups[0], source),
        _levels(groups, source, not_drawn(left_out, others)),
    ]
    if len(alike) > 1:
        exhibits.append(_by_arrival(alike, source, not_drawn([], others)))
    else:
        several = f"{COMMANDS[source]} --arrival {ARRIVALS[source]}"
        exhibits.append(
            Missing("Time to 90 % against the time between arrivals", "ReLAQS thesis, figure 4.8", several)
        )
    return [*exhibits, _thirds(groups[0], source), policy_tables(every, source)]


def in_order(runs: Sequence[ScheduleRun]) -> list[ScheduleRun]:
    """Return runs in the order of the policies' registry: records stand in the order they were finished."""
    known = list(POLICIES)
    return sorted(runs, key=lambda run: known.index(run.policy) if run.policy in known else len(known))


def most_alike(groups: list[list[ScheduleRun]]) -> list[list[ScheduleRun]]:
    """Return the settings that differ in their arrivals alone: those of the workload measured most."""

    def workload(group: list[ScheduleRun]) -> tuple[object, ...]:
        first = group[0]
        return (first.workload, first.capacity_cores, first.cores_most, len(first.jobs.names))

    counted: dict[tuple[object, ...], list[list[ScheduleRun]]] = {}
    for group in groups:
        counted.setdefault(workload(group), []).append(group)
    return max(counted.values(), key=lambda found: sum(map(len, found)))


def in_panels(groups: list[list[ScheduleRun]]) -> list[list[ScheduleRun]]:
    """Return the settings that have room in one figure, the thesis's arrivals before the most frequent."""
    preferred = sorted(groups, key=lambda group: group[0].arrival_seconds not in THESIS_ARRIVALS)
    chosen = preferred[:MOST_PANELS]
    return [group for group in groups if group in chosen]


def styles(names: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Return the colour's role, line and marker of each policy, in every figure the same.

    Fair sharing is grey and dashed. A user's own policies have the colours that those with a name leave.
    """
    known = [*COMMON, *(name for name in POLICIES if name not in (REFERENCE, *COMMON))]
    places = {name: index % len(SERIES) for index, name in enumerate(known) if name in names}
    own = [name for name in names if name not in POLICIES]
    left = [place for place in range(len(SERIES)) if place not in places.values()] or [0]
    places |= {name: left[index % len(left)] for index, name in enumerate(own)}
    found = {name: (SERIES[place], "-", MARKERS[place % len(MARKERS)]) for name, place in places.items()}
    return {REFERENCE: ("muted", "--", "."), **found}


def mean_over(runs: Sequence[ScheduleRun], field: str, until: float) -> tuple[FloatArray, FloatArray]:
    """Return moments in seconds and the mean over runs of a column of `Series` at each, shape (POINTS,)."""
    at = np.linspace(0.0, until, POINTS)
    rows = [np.interp(at, run.series.at_seconds, getattr(run.series, field)) for run in runs]
    return at, np.mean(rows, axis=0)


def _over_time(group: Sequence[ScheduleRun], source: str) -> Exhibit:
    rows = compare(group)
    until = max(float(run.series.at_seconds[-1]) for run in group)

    def draw(axes: list[Axes], palette: Palette) -> None:
        chosen = styles([row.policy for row in rows])
        for panel, field, title in (
            (axes[0], "mean_error", "true error"),
            (axes[1], "mean_progress", "progress metric (result delta)"),
        ):
            for row in rows:
                role, line, _ = chosen[row.policy]
                at, values = mean_over(row.runs, field, until)
                panel.plot(
                    at, 100 * values, color=palette[role], linestyle=line, label=policy_label(row.policy)
                )
            panel.set(title=title, xlabel="seconds", ylim=(0, None), xlim=(0, until))
        axes[0].set_ylabel("mean over arrived jobs, %")
        shared_legend(axes[0])

    findings = [
        Finding(
            f"{policy_label(row.policy)}: integral of the error over time, relative to fair sharing",
            NOT_GIVEN,
            signed(row.error_change) or "±0 %",
        )
        for row in rows
        if row.policy != REFERENCE
    ]
    return Exhibit(
        name=f"thesis-4-6-{source}",
        title=f"Average progress and error over time, {source}",
        source="ReLAQS thesis, figure 4.6",
        caption=(
            f"{sentence(group)} Means over the jobs that have arrived, and over seeds; an error is 1 until "
            "a job's first result, then relative to its largest, and 0 at its end."
        ),
        picture=picture(f"thesis-4-6-{source}", draw, columns=2),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in group]),
    )


def _together(groups: Sequence[Sequence[ScheduleRun]]) -> list[ScheduleRun]:
    return [run for group in groups for run in group]


def names_of(groups: Sequence[Sequence[ScheduleRun]]) -> list[str]:
    """Return the policies of all groups, each once, in the order of the registry."""
    return list(dict.fromkeys(run.policy for run in in_order(_together(groups))))


def sentence(group: Sequence[ScheduleRun]) -> str:
    """Return what was measured, as the first sentence of a caption."""
    title = title_of(group)
    return title[0].upper() + title[1:] + "."


def _levels(groups: Sequence[Sequence[ScheduleRun]], source: str, left_out: str) -> Exhibit:
    compared = [compare(group) for group in groups]
    chosen = styles(names_of(groups))

    def draw(axes: list[Axes], palette: Palette) -> None:
        for panel, group, rows in zip(axes, groups, compared, strict=True):
            for row in rows:
                role, line, _ = chosen[row.policy]
                means = np.mean([run.mean_level_seconds for run in row.runs], axis=0)
                panel.plot(
                    100 * LEVELS, means, color=palette[role], linestyle=line, label=policy_label(row.policy)
                )
            panel.set(title=_arrival(group[0]), xlabel="reduction of the error, %", ylim=(0, None))
        axes[0].set_ylabel("mean seconds from arrival")
        shared_legend(axes[0])

    findings = [
        finding
        for group, rows in zip(groups, compared, strict=True)
        for finding in _reductions(group[0], rows)
    ]
    return Exhibit(
        name=f"thesis-4-7-{source}",
        title=f"Time to reach each reduction of the error, {source}",
        source="ReLAQS thesis, figure 4.7: arrivals every 10, 40 and 120 s on 256 cores",
        caption=(
            f"{sentence(_together(groups))} Beyond the crossing point fair sharing is faster. The thesis's "
            "−47 % and −21 % are of ReLAQS at 256 cores, 12 queries and arrivals every 120 s. "
            f"{left_out}"
        ),
        picture=picture(f"thesis-4-7-{source}", draw, columns=len(groups)),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in _together(groups)]),
    )


def not_drawn(groups: Sequence[Sequence[ScheduleRun]], others: int) -> str:
    """Return which settings a figure leaves out, as a sentence. others: how many, of other jobs or cores."""
    parts = []
    if groups:
        parts.append(f"a job every {either([f'{group[0].arrival_seconds:g}' for group in groups])} s")
    if others:
        parts.append(f"{others} setting{'s' if others > 1 else ''} of other jobs or cores")
    return f"Not drawn, but in the table of policies below: {'; '.join(parts)}." if parts else ""


def _arrival(run: ScheduleRun) -> str:
    return "given arrivals" if math.isnan(run.arrival_seconds) else f"a job every {run.arrival_seconds:g} s"


def _reductions(run: ScheduleRun, rows: Sequence[Row]) -> list[Finding]:
    findings = []
    setting = (run.capacity_cores, len(run.jobs.names), run.arrival_seconds)
    for row in rows:
        if row.policy == REFERENCE:
            continue
        what = f"{_arrival(run)}, {policy_label(row.policy)}"
        for (level, paper), change in zip(THESIS_CHANGES.items(), row.reduced_change, strict=False):
            stated = paper if setting == THESIS_SETTING else NOT_GIVEN
            findings.append(
                Finding(f"{what}: time to −{level * 100:.0f} %", stated, signed(change) or "±0 %")
            )
        findings.append(Finding(f"{what}: crossing point", NOT_GIVEN, in_percent(row.crossing.mean)))
    return findings


def _by_arrival(groups: Sequence[Sequence[ScheduleRun]], source: str, left_out: str) -> Exhibit:
    compared = [compare(group) for group in groups]
    arrivals = [group[0].arrival_seconds for group in groups]

    def draw(axes: list[Axes], palette: Palette) -> None:
        [panel] = axes
        for name, (role, line, marker) in styles(names_of(groups)).items():
            by_group = [{row.policy: row for row in rows}.get(name) for rows in compared]
            known = [
                (at, row.reduced[1]) for at, row in zip(arrivals, by_group, strict=True) if row is not None
            ]
            if not known:
                continue
            panel.errorbar(
                [at for at, _ in known],
                [figure.mean for _, figure in known],
                yerr=[
                    0.0 if math.isnan(figure.standard_error) else figure.standard_error for _, figure in known
                ],
                color=palette[role],
                linestyle=line,
                marker=marker,
                capsize=3,
                label=policy_label(name),
            )
        panel.set(
            xlabel="mean seconds between arrivals",
            ylabel="mean seconds to −90 %",
            xscale="log",
            ylim=(0, None),
        )
        panel.set_xticks(arrivals, [f"{at:g}" for at in arrivals])
        panel.minorticks_off()
        shared_legend(panel)

    findings = [
        Finding(
            f"{_arrival(group[0])}, {policy_label(row.policy)}: seconds to −90 %",
            NOT_GIVEN,
            f"{row.reduced[1].mean:,.3g} s",
        )
        for group, rows in zip(groups, compared, strict=True)
        for row in rows
    ]
    return Exhibit(
        name=f"thesis-4-8-{source}",
        title=f"Time to a 90 % reduction against the arrivals, {source}",
        source="ReLAQS thesis, figure 4.8",
        caption=f"{sentence(_together(groups))} Bars: ± one standard error over seeds. {left_out}",
        picture=picture(f"thesis-4-8-{source}", draw),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in _together(groups)]),
    )


def _thirds(group: Sequence[ScheduleRun], source: str) -> Exhibit:
    rows = compare(group)

    def draw(axes: list[Axes], palette: Palette) -> None:
        [panel] = axes
        places = np.arange(len(rows))
        bottom = np.zeros(len(rows))
        shares = np.array([mean_thirds(row.runs) for row in rows])
        for role, hatch, name, share in zip(SERIES, ("", "//", ".."), GROUPS, shares.T, strict=False):
            panel.barh(
                places,
                100 * share,
                left=100 * bottom,
                color=palette[role],
                hatch=hatch,
                label=name,
                edgecolor=palette["page"],
            )
            bottom += share
        panel.set_yticks(places, [policy_label(row.policy) for row in rows])
        panel.invert_yaxis()
        panel.set(xlabel="% of the core-seconds, while three jobs or more are there", xlim=(0, 100))
        shared_legend(panel)

    findings = [
        Finding(
            f"{policy_label(row.policy)}: share of the worst third",
            NOT_GIVEN,
            in_percent(mean_thirds(row.runs)[0]),
        )
        for row in rows
    ]
    return Exhibit(
        name=f"slaq-shares-{source}",
        title=f"Who gets the cores, {source}",
        source="SLAQ, among figures 3.5 to 3.10: cores by how far jobs have come",
        caption=f"{sentence(group)} Jobs are parted into thirds by their true error at each moment.",
        picture=picture(f"slaq-shares-{source}", draw),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in group]),
    )


def mean_thirds(runs: Sequence[ScheduleRun]) -> FloatArray:
    """Return the mean share of the cores of the worst, middle and best third, shape (3,)."""
    shares = []
    for run in runs:
        busy = run.series.jobs >= len(GROUPS)
        if busy.any():
            shares.append(run.series.third_shares[:, busy].mean(axis=1))
    return np.mean(shares, axis=0) if shares else np.full(len(GROUPS), np.nan)
