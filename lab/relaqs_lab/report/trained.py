"""Exhibits of training runs that shared a cluster, and of how long decisions take (SLAQ)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from relaqs.sharing.view import Kind
from relaqs_lab.cli.policy_tables import policy_label, signed
from relaqs_lab.records import ScheduleRun
from relaqs_lab.records.comparison import REFERENCE, compare, settings
from relaqs_lab.report.exhibit import (
    Exhibit,
    Finding,
    Missing,
    Palette,
    commands_of,
    picture,
    plain_numbers,
    shared_legend,
)
from relaqs_lab.report.shared import in_order, mean_over, most_alike, names_of, sentence, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
