"""Exhibits of training: elastic jobs under slot policies, and runs that shared a cluster.

The first are beside what the paper of ONES reports, the second beside SLAQ's figures, with how long
decisions take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from relaqs.policies.registry import SLOT_POLICIES
from relaqs.sharing.view import Kind
from relaqs_lab.cli.machines import GANG_CAPTION, GANG_COLUMNS, title_of_gangs
from relaqs_lab.cli.studies import both_parts, policy_cells, policy_label, signed
from relaqs_lab.records import ScheduleRun
from relaqs_lab.records.comparison import (
    REFERENCE,
    Figure,
    PolicyRow,
    by_setting,
    compare,
    policy_rows,
    settings,
)
from relaqs_lab.records.simulated_runs import GANG_MEASURES, GangRun, relative, share_within, wilcoxon_p
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
    picture,
    plain_numbers,
    shared_legend,
)
from relaqs_lab.report.shared import in_order, mean_over, most_alike, names_of, sentence, styles
from relaqs_lab.simulation.machines.table2 import (
    ONES_LESS_THAN,
    ONES_LONGEST_SECONDS,
    ONES_SOON_SHARE,
    PUBLISHED,
    SOON_SECONDS,
    TABLE2_NAME,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ONES, ONES_PAPER = "ones", "ONES, SC 2021, table 2 and figure 15"
TIMES = (  # words, in the paper, in the records
    ("from arrival to end", "mean_seconds", "completion_seconds"),
    ("with slots", "executed_seconds", "executed_seconds"),
    ("without slots", "queuing_seconds", "queuing_seconds"),
)
POINTS = 150
LINES = ("-", "--", ":", "-.")
COMMAND = "relaqs simulate --gangs table2"


def gangs(runs: Sequence[GangRun]) -> list[Part]:
    """Return the exhibits of elastic jobs: of the setting with most records, and a table of all."""
    if not runs:
        return [Missing("Elastic jobs on machines: times from arrival to end", ONES_PAPER, COMMAND)]
    every = by_setting(_in_order(runs))
    group = max(every, key=len)
    others = len(every) - 1
    left_out = (
        f" Not drawn, but in the table below: {others} more setting{'s' if others > 1 else ''}."
        if others
        else ""
    )
    return [_completion(group, left_out), *_slots(group, left_out), _tables(every)]


def _in_order(runs: Sequence[GangRun]) -> list[GangRun]:
    """Return runs in the order of the policies' registry, those with other parameters behind it."""
    known = list(SLOT_POLICIES)

    def place(run: GangRun) -> tuple[int, str]:
        name = run.policy.partition(" (")[0]
        return known.index(name) if name in known else len(known), run.policy

    return sorted(runs, key=place)


def _by_policy(group: Sequence[GangRun]) -> dict[str, list[GangRun]]:
    return {name: [run for run in group if run.policy == name] for name in dict.fromkeys(_names(group))}


def _names(group: Sequence[GangRun]) -> list[str]:
    return [run.policy for run in group]


def _style(index: int) -> tuple[str, str]:
    """Return the colour's role and the line of a figure's so-manieth policy."""
    return SERIES[index % len(SERIES)], LINES[(index // len(SERIES) + index) % len(LINES)]


def _completion(group: Sequence[GangRun], left_out: str) -> Exhibit:
    every = _by_policy(group)

    def draw(axes: list[Axes], palette: Palette) -> None:
        [panel] = axes
        for index, (name, own) in enumerate(every.items()):
            role, line = _style(index)
            seconds = np.sort(np.concatenate([run.jobs.completion_seconds for run in own]))
            shares = np.arange(1, len(seconds) + 1) / len(seconds)  # a job that did not end is behind all
            panel.step(seconds, 100 * shares, where="post", color=palette[role], linestyle=line, label=name)
        panel.set(xlabel="seconds from arrival to end", ylabel="% of the jobs", xscale="log", ylim=(0, 100))
        plain_numbers(panel.xaxis)
        shared_legend(panel)

    return Exhibit(
        name="ones-completion",
        title=f"Elastic jobs: times from arrival to end, {group[0].source}",
        source=ONES_PAPER,
        caption=(
            f"{_sentence(group)} The jobs of all seeds together. The paper's machines and speeds are not "
            f"known, so its numbers say which way a change goes, and not how many seconds it takes.{left_out}"
        ),
        picture=picture("ones-completion", draw),
        findings=tuple(_findings(group, every)),
        commands=commands_of([run.circumstances for run in group]),
    )


def _findings(group: Sequence[GangRun], every: dict[str, list[GangRun]]) -> list[Finding]:
    """Return the paper's numbers beside ours. Those of other jobs have none in the paper."""
    is_papers = group[0].workload.startswith(TABLE2_NAME)
    found = []
    for row in policy_rows(group, GANG_MEASURES):
        published = PUBLISHED.get(row.policy) if is_papers else None
        for what, theirs, ours in TIMES:
            paper = NOT_GIVEN if published is None else f"{getattr(published, theirs):g} s"
            found.append(Finding(f"{row.policy}: mean time {what}", paper, _seconds(row.figures[ours])))
        found += _spread(row, every[row.policy], is_papers=is_papers)
    return found + _changes(every, is_papers=is_papers)


def _spread(row: PolicyRow, own: Sequence[GangRun], *, is_papers: bool) -> list[Finding]:
    is_known = is_papers and row.policy == ONES
    soon = both_parts(share_within(own, SOON_SECONDS), 100, ".0f") + " %"
    longest = row.figures["longest_seconds"]
    return [
        Finding(
            f"{row.policy}: done within {SOON_SECONDS:g} s",
            f"{ONES_SOON_SHARE:.0%}".replace("%", " %") if is_known else NOT_GIVEN,
            soon,
        ),
        Finding(
            f"{row.policy}: the longest",
            f"below {ONES_LONGEST_SECONDS:,.0f} s" if is_known else NOT_GIVEN,
            _seconds(longest),
        ),
    ]


def _changes(every: dict[str, list[GangRun]], *, is_papers: bool) -> list[Finding]:
    """Return what each policy's mean is relative to those that the paper compares ONES with."""
    found = []
    for other, less in ONES_LESS_THAN.items():
        for name, own in every.items():
            if other not in every or name in ONES_LESS_THAN:
                continue
            change, p = relative(own, every[other]), wilcoxon_p(own, every[other])
            paper = f"−{less:.1%}".replace("%", " %") if is_papers and name == ONES else NOT_GIVEN
            error = "" if math.isnan(change.standard_error) else f" ± {100 * change.standard_error:.1f}"
            ours = f"{100 * (change.mean - 1.0):+.1f}{error} %".replace("-", "−")
            found.append(Finding(f"{name}: mean relative to {other}", paper, f"{ours} (p = {p:.2g})"))
    return found


def _slots(group: Sequence[GangRun], left_out: str) -> list[Exhibit]:
    """Return the slots held over time, of the runs whose records have them."""
    every = _by_policy([run for run in group if run.slots is not None])
    if not every:
        return []
    until = max(float(run.slots.until_seconds[-1]) for own in every.values() for run in own if run.slots)
    total = group[0].nodes * group[0].node_slots

    def draw(axes: list[Axes], palette: Palette) -> None:
        [panel] = axes
        at = np.linspace(0.0, until, POINTS)
        panel.axhline(total, color=palette["muted"], linewidth=0.8)
        for index, (name, own) in enumerate(every.items()):
            role, line = _style(index)
            held = [
                np.interp(at, run.slots.until_seconds, run.slots.held, right=0.0) for run in own if run.slots
            ]
            panel.plot(at, np.mean(held, axis=0), color=palette[role], linestyle=line, label=name)
        panel.set(
            xlabel="seconds since the first job came", ylabel="slots held", xlim=(0, until), ylim=(0, None)
        )
        shared_legend(panel)

    rows = {row.policy: row for row in policy_rows(group, GANG_MEASURES)}
    findings = [
        Finding(
            f"{name}: share of all slots, until the last job has ended",
            NOT_GIVEN,
            both_parts(rows[name].figures["used_share"], 100, ".0f") + " %",
        )
        for name in every
    ]
    return [
        Exhibit(
            name="ones-slots",
            title=f"Elastic jobs: slots held over time, {group[0].source}",
            source=ONES_PAPER,
            caption=f"{_sentence(group)} Means over seeds; {total} slots are there.{left_out}",
            picture=picture("ones-slots", draw),
            findings=tuple(findings),
            commands=commands_of([run.circumstances for run in group]),
        )
    ]


def _tables(every: Sequence[Sequence[GangRun]]) -> PolicyTables:
    return PolicyTables(
        name="gangs",
        title="Slot policies side by side",
        source=f"{ONES_PAPER}, and AdaptDL's simulator: in numbers",
        caption=GANG_CAPTION,
        headings=("policy", *(column.heading for column in GANG_COLUMNS)),
        tables=tuple(
            PolicyTable(
                title=title_of_gangs(group),
                rows=tuple(policy_cells(row, GANG_COLUMNS) for row in policy_rows(group, GANG_MEASURES)),
                commands=commands_of([run.circumstances for run in group]),
            )
            for group in every
        ),
    )


def _sentence(group: Sequence[GangRun]) -> str:
    title = title_of_gangs(group)
    return title[0].upper() + title[1:] + "."


def _seconds(figure: Figure) -> str:
    return f"{both_parts(figure, 1, ',.0f')} s" if math.isfinite(figure.mean) else "–"


SLAQ_CHANGES = ("up to −73 %", "up to −44 %")  # of the loss, and of the time to reduce it; its abstract


def training_schedules(runs: Sequence[ScheduleRun]) -> list[Exhibit | Missing]:
    """Return SLAQ's time to reduce losses, from runs whose jobs train, and the time of decisions."""
    trained = [run for run in runs if all(kind is Kind.TRAINING for kind in run.jobs.kinds)]
    found: list[Exhibit | Missing] = []
    if trained:
        source = trained[-1].source
        groups = most_alike(settings(in_order([run for run in trained if run.source == source])))
        found.append(_losses(groups[0], source))
    else:
        command = "relaqs simulate --training 100%"
        found.append(
            Missing("Average loss, and time to reduce it", "SLAQ, among figures 3.5 to 3.10", command)
        )
    known = [run for run in runs if math.isfinite(run.decision_ms_mean)]
    if known:
        found.append(_decisions(known))
    return found


def _losses(group: Sequence[ScheduleRun], source: str) -> Exhibit:
    rows = compare(group)
    until = max(float(run.series.at_seconds[-1]) for run in group)

    def draw(axes: list[Axes], palette: Palette) -> None:
        chosen = styles([row.policy for row in rows])
        for row in rows:
            role, line, _ = chosen[row.policy]
            at, values = mean_over(row.runs, "mean_error", until)
            axes[0].plot(
                at, 100 * values, color=palette[role], linestyle=line, label=policy_label(row.policy)
            )
        axes[0].set(
            title="normalised loss", xlabel="seconds", ylabel="mean over arrived jobs, %", ylim=(0, None)
        )
        width = 0.8 / len(rows)
        for index, row in enumerate(rows):
            means = [figure.mean for figure in row.reduced[1:]]
            places = np.arange(len(means)) + index * width
            axes[1].bar(
                places, means, width, color=palette[chosen[row.policy][0]], label=policy_label(row.policy)
            )
        axes[1].set_xticks(np.arange(2) + 0.4 - width / 2, ["−90 %", "−95 %"])
        axes[1].set(title="mean seconds to a reduced loss", ylabel="seconds")
        shared_legend(axes[0])

    quality, delay = SLAQ_CHANGES
    findings = [
        Finding(f"{policy_label(row.policy)}: {what}", paper, signed(change) or "±0 %")
        for row in rows
        if row.policy != REFERENCE
        for what, paper, change in (
            ("average loss over time", quality, row.error_change),
            ("time to −90 % of the loss", delay, row.reduced_change[1]),
            ("time to −95 % of the loss", delay, row.reduced_change[2]),
        )
    ]
    cap = "no cap" if math.isinf(group[0].cores_most) else f"at most {group[0].cores_most:g} cores a job"
    return Exhibit(
        name="slaq-losses",
        title=f"Average loss over time, and the time to reduce it, {source}",
        source="SLAQ, among figures 3.5 to 3.10",
        caption=(
            f"{sentence(group)} Parallelism: {cap}; the gain depends on it and on the load, from most of "
            "the loss without a cap to nothing with a cap at the fair share. Changes are relative to fair "
            "sharing; SLAQ's abstract has those of max_sum, without the load or the reduction they are of."
        ),
        picture=picture("slaq-losses", draw, columns=2),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in group]),
    )


def _jobs_at_once(run: ScheduleRun) -> float:
    return float(np.nan_to_num(run.series.jobs.mean()))


def _decisions(runs: Sequence[ScheduleRun]) -> Exhibit:
    names = names_of([runs])

    def draw(axes: list[Axes], palette: Palette) -> None:
        [panel] = axes
        for name, (role, _, marker) in styles(names).items():
            own = [run for run in runs if run.policy == name]
            if own:
                panel.scatter(
                    [max(_jobs_at_once(run), 0.5) for run in own],
                    [run.decision_ms_mean for run in own],
                    color=palette[role],
                    marker=marker,
                    s=22,
                    label=policy_label(name),
                )
        panel.set(xlabel="jobs at once, on average", ylabel="milliseconds a plan", xscale="log", yscale="log")
        plain_numbers(panel.xaxis)
        plain_numbers(panel.yaxis)
        shared_legend(panel)

    most = {name: max((run for run in runs if run.policy == name), key=_jobs_at_once) for name in names}
    findings = [
        Finding(
            f"{policy_label(name)}: a plan where most jobs are at once",
            "4,000 jobs, 16,000 cores; time not given",
            f"{_jobs_at_once(run):,.0f} jobs, {run.capacity_cores:,.0f} cores: {run.decision_ms_mean:.1f} ms",
        )
        for name, run in most.items()
    ]
    return Exhibit(
        name="slaq-decisions",
        title="How long a decision takes",
        source="SLAQ, among figures 3.5 to 3.10",
        caption=(
            "The mean time of a plan in each run, live or simulated, with all curves fitted anew where "
            "simulated."
        ),
        picture=picture("slaq-decisions", draw),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in runs]),
    )
