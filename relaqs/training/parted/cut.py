"""How a model is cut: neighbouring layers make a stage, and each stage has replicas that share the rows.

What goes from a stage to the next one: the outputs of its layers for a piece.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relaqs.arguments import ArgumentError
from relaqs.parts.plan import PlacedPolicy
from relaqs.training.arguments import check_count


class Part(NamedTuple):
    """One copy of one stage of a model. Both numbers begin at 0."""

    stage: int
    replica: int


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """Where a part of a model is.

    Attributes:
        stage: which neighbouring layers it has; 0 are the first ones.
        replica: which share of a step's rows it takes.
        worker: the address of its worker.

    >>> PlacedPart(stage=0, replica=1, worker="tcp://10.0.0.7:4711").worker
    'tcp://10.0.0.7:4711'
    """

    stage: int
    replica: int
    worker: str


@dataclass(frozen=True, slots=True)
class ModelParts:
    """Into which parts a model is cut, and who says where they are.

    Args:
        stages: how many; they get about the same number of parameters. Or the layers at which all stages but
            the first begin: (2, 5) makes three stages of the layers 0 and 1, 2 to 4, and 5 on.
        replicas: how many copies of each stage share the rows of a step.
        placed: the name of a placed policy, or one of your own. Or the address of a worker for each part, by
            its stage and replica.

    >>> ModelParts(stages=2, replicas=2, placed="fair").replicas
    2
    """

    stages: int | Sequence[int] = 2
    replicas: int = 1
    placed: str | PlacedPolicy | Mapping[tuple[int, int], str] = "mlf_h"

    def __post_init__(self) -> None:
        check_count("replicas", self.replicas)
        if not isinstance(self.placed, str | Mapping | PlacedPolicy):
            raise ArgumentError(
                f"placed is {self.placed!r}; give the name of a placed policy, an object with a name and "
                "plan(view), or the address of a worker for each part"
            )
        if isinstance(self.stages, Sequence) and not isinstance(self.stages, str):
            starts = tuple(check_count("stages", layer) for layer in self.stages)
            if list(starts) != sorted({*starts}):
                raise ArgumentError(f"stages is {self.stages!r}; give layers that rise, such as (2, 5)")
            object.__setattr__(self, "stages", starts)
        else:
            check_count("stages", self.stages)


@dataclass(frozen=True, slots=True)
class ModelCut:
    """A model of L layers, cut.

    Attributes:
        starts: the first layer of each stage, shape (S,). The first one is 0.
        layers: how many layers there are.
        replicas: of each stage.

    >>> cut = ModelCut(starts=(0, 2), layers=5, replicas=2)
    >>> cut.layers_of(1), cut.parts
    (range(2, 5), (Part(stage=0, replica=0), Part(stage=0, replica=1), Part(stage=1, replica=0), \
Part(stage=1, replica=1)))
    """

    starts: tuple[int, ...]
    layers: int
    replicas: int

    @property
    def stages(self) -> int:
        return len(self.starts)

    @property
    def parts(self) -> tuple[Part, ...]:
        """All of them, by stage and then by replica."""
        return _parts_of(self.stages, self.replicas)

    def layers_of(self, stage: int) -> range:
        """Return the layers of a stage."""
        return range(self.starts[stage], (*self.starts, self.layers)[stage + 1])


@cache  # plans ask for them all the time
def _parts_of(stages: int, replicas: int) -> tuple[Part, ...]:
    return tuple(Part(*each) for each in product(range(stages), range(replicas)))


def cut_of(parts: ModelParts, sizes: Sequence[int], model: str) -> ModelCut:
    """Return how a model is cut.

    Args:
        sizes: the parameters of each layer, shape (L,).
        model: its name, for errors.

    Raises:
        ArgumentError: there are not so many stages to be had, or one would have no parameters.
    """
    most = sum(size > 0 for size in sizes)
    if isinstance(parts.stages, int):
        if parts.stages > most:
            raise ArgumentError(
                f"stages is {parts.stages}, but {model} has {most} layers with parameters; a stage needs one "
                "at least, so give fewer"
            )
        return ModelCut(even_starts(sizes, parts.stages), len(sizes), parts.replicas)
    cut = ModelCut((0, *parts.stages), len(sizes), parts.replicas)
    for stage in range(cut.stages):
        layers = cut.layers_of(stage)
        if layers.stop > len(sizes) or not sum(sizes[layers.start : layers.stop]):
            raise ArgumentError(
                f"stages is {parts.stages}, so stage {stage} has the layers from {layers.start} to before "
                f"{layers.stop} of {model}; there are {len(sizes)} layers, and each stage must have one with "
                "parameters"
            )
    return cut


def even_starts(sizes: Sequence[int], stages: int) -> tuple[int, ...]:
    """Return the first layer of each stage, so that the largest stage has as few parameters as can be.

    A layer without parameters is in the stage of the one before it.

    >>> even_starts([10, 0, 10, 0, 30], 2), even_starts([4, 4, 4, 4, 4], 3)
    ((0, 4), (0, 1, 3))
    """
    heads = [layer for layer, size in enumerate(sizes) if size]
    sums = [0, *accumulate(sizes[layer] for layer in heads)]
    best: list[tuple[int, tuple[int, ...]]] = [(total, (0,)) for total in sums]  # of the first heads
    for used in range(1, stages):
        best = [
            min((max(best[at][0], sums[end] - sums[at]), (*best[at][1], at)) for at in range(used, end))
            if end > used
            else (sums[-1] + 1, ())
            for end in range(len(sums))
        ]
    return (0, *(heads[start] for start in best[-1][1][1:]))


def check_workers(placed: Mapping[tuple[int, int], str], cut: ModelCut, workers: Collection[str]) -> None:
    """Raise ArgumentError unless each part has a worker that is there, and nothing else is named."""
    for own in cut.parts:
        if own not in placed:
            raise ArgumentError(f"placed has no worker for {tuple(own)}; name one for each part")
    for part, worker in placed.items():
        if part not in cut.parts:
            raise ArgumentError(
                f"placed has a worker for {part!r}, which is no part; these are stages 0 to {cut.stages - 1} "
                f"with replicas 0 to {cut.replicas - 1}"
            )
        if worker not in workers:
            there = ", ".join(sorted(workers)) or "none"
            raise ArgumentError(f"placed has part {part} on {worker!r}; the workers are {there}")


@dataclass(frozen=True, slots=True)
class Passed:
    """The outputs of a stage for a piece.

    Attributes:
        values: shape (rows, …).
        draws: where the generator of random numbers stands after the layers so far; None: none has drawn. So
            dropout draws what it would draw in the whole model.
    """

    values: NDArray[Any]
    draws: NDArray[np.uint8] | None
