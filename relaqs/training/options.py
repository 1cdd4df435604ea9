"""What `Session.train` was asked for, beside the job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from relaqs.arguments import check_loss, check_priority, check_seconds
from relaqs.training.arguments import check_count
from relaqs.training.elastic.journal import Journal
from relaqs.training.goals import TrainingGoals
from relaqs.training.parted.cut import ModelParts

Batch: TypeAlias = int | Literal["elastic"] | Journal | None
"""How many rows a mini-batch has: a number, "elastic", or what a journal says. None: the job's own number."""

ParametersWord = Literal["auto", "client", "sharded"]
"""Where parameters are between passes."""


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """The keyword arguments of `Session.train`. Raises ArgumentError naming the first one not accepted."""

    priority: float = 1.0
    target_loss: float | None = None
    timeout: float | None = None
    max_steps: int | None = None
    chart_pixels: int | None = None
    goals: TrainingGoals = field(default_factory=TrainingGoals)
    batch: Batch = None
    parameters: ParametersWord = "auto"
    parts: int | ModelParts | None = None

    @property
    def passes_most(self) -> float:
        """After how many passes the run ends, inf where that is not said."""
        return math.inf if self.max_steps is None else self.max_steps

    def __post_init__(self) -> None:
        check_priority(self.priority)
        if self.target_loss is not None:
            check_loss("target_loss", self.target_loss)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout)
        for name in ("max_steps", "chart_pixels"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
