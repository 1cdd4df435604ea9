"""The frontier on small clusters: policies and their bound stand in one table, and none is below it."""

from __future__ import annotations

import pytest

from benchmarks import frontier

SMALL = ["--seeds", "2", "--jobs", "3", "--core-seconds", "3000", "--arrival", "10", "--epoch", "3"]


def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    frontier.main([*SMALL, "--policies", "shortest_remaining_time,milestones:70x2+90"])
    printed = capsys.readouterr().out
    for each in ("fair", "shortest_remaining_time", "milestones:70x2+90", "bound of any policy, each alone"):
        assert each in printed
    shares = [line.split("│")[1].strip() for line in printed.splitlines() if line.endswith(" % │")]
    assert shares[-5:] == ["0%", "25%", "50%", "75%", "100%"]


def test_no_policy_is_below_the_bound() -> None:
    options = frontier.parser().parse_args([*SMALL, "--policies", "shortest_remaining_time,milestones:70"])
    study = frontier.studied(options, 10.0)
    alone = [figure.mean for figure in frontier.bound_alone(study)]
    for share in frontier.SHARES:
        _, reached = frontier.best_together(study, share)
        bound = frontier.bound_together(study, share).mean
        assert bound <= reached.mean
        assert bound >= share * alone[0] + (1 - share) * alone[1] - 1e-9
