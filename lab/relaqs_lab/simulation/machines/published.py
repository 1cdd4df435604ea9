"""What the paper of ONES reports of the 50 jobs of its Table 2, to be put beside what is simulated.

Source: Bian et al., Online Evolutionary Batch Size Orchestration, SC 2021, figure 15 and its text. It gives
execution and queuing as changes relative to other policies; the seconds follow from these.
"""

from __future__ import annotations

from dataclasses import dataclass

SOON_SECONDS = 200.0  # the paper tells the share of jobs that are done within them


@dataclass(frozen=True, slots=True)
class PublishedTimes:
    """Mean seconds of a job. mean_seconds: from arrival to end, execution and queuing together."""

    mean_seconds: float
    executed_seconds: float
    queuing_seconds: float


PUBLISHED = {
    "tiresias": PublishedTimes(450, 343, 107),
    "optimus": PublishedTimes(420, 220, 200),
    "one_at_a_time": PublishedTimes(335, 209, 127),  # in place of a policy by reinforcement learning
    "ones": PublishedTimes(245, 158, 87),
}
ONES_LESS_THAN = {"tiresias": 0.456, "optimus": 0.417}  # by which share its mean is smaller
ONES_SOON_SHARE = 0.86
ONES_LONGEST_SECONDS = 2000.0  # at most
