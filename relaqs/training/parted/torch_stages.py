"""Stages of a `TorchModule`: forward and backward of some of its layers, with the bits of all of it."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from relaqs_engine.errors import DataError

from relaqs.arguments import ArgumentError
from relaqs.training.elastic.torch_module import (
    TorchModule,
    TorchState,
    drawn,
    loss_of,
    made_module,
    normalises,
    ready_module,
    same_shape,
    wanted_of,
)
from relaqs.training.parted.placing import ModelCut, Passed
from relaqs.training.rows import Rows, Sums

if TYPE_CHECKING:
    import torch


ALL_LAYERS = range(sys.maxsize)


def layer_sizes(job: TorchModule) -> list[int]:
    """Return the parameters of each layer. Raises ArgumentError where the module has no layers to cut at."""
    import torch

    module = made_module(job.place)
    if type(module).forward is not torch.nn.Sequential.forward:
        raise ArgumentError(
            f"parts are given, but {job.place!r} makes a {type(module).__name__}; only a torch.nn.Sequential "
            "can be cut, so give one, or leave parts out"
        )
    owners: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        layer = name.split(".", 1)[0]
        if owners.setdefault(id(parameter), layer) != layer:
            raise ArgumentError(
                f"parts are given, but layers {owners[id(parameter)]} and {layer} of {job.place!r} share a "
                "parameter; give each its own, or leave parts out"
            )
    return [sum(each.numel() for each in layer.parameters()) for layer in _layers(module).values()]


def split_state(job: TorchModule, cut: ModelCut, state: TorchState) -> tuple[TorchState, ...]:
    """Return the state of each stage, shape (S,)."""
    return tuple(_stage_state(job, cut, stage, state) for stage in range(cut.stages))


def joined_state(states: tuple[TorchState, ...]) -> TorchState:
    """Return the state of the whole model. states: of all its stages, in their order."""
    parameters: dict[str, torch.Tensor] = {}
    buffers: dict[str, torch.Tensor] = {}
    memory: dict[int, Any] = {}
    for state in states:
        memory |= {len(parameters) + at: kept for at, kept in state.memory.items()}
        parameters |= state.parameters
        buffers |= state.buffers
    return TorchState(parameters, buffers, memory, states[0].classes, states[0].version)


def row_bytes(job: TorchModule, cut: ModelCut, state: TorchState, features: int) -> list[int]:
    """Return the bytes that each stage but the last gives the next one for a row, shape (S - 1,)."""
    import torch

    module = ready_module(job, state).eval()
    passing, found = torch.zeros(1, features), []
    with torch.no_grad():
        for stage in range(cut.stages - 1):
            passing = torch.nn.Sequential(_layers(module, cut.layers_of(stage)))(passing)
            found.append(passing.numel() * passing.element_size())
    return found


def _stage_state(job: TorchModule, cut: ModelCut, stage: int, state: TorchState) -> TorchState:
    own = {*_layers(made_module(job.place), cut.layers_of(stage))}
    positions = [at for at, name in enumerate(state.parameters) if name.split(".", 1)[0] in own]
    return TorchState(
        {name: each for name, each in state.parameters.items() if name.split(".", 1)[0] in own},
        {name: each for name, each in state.buffers.items() if name.split(".", 1)[0] in own},
        {at: state.memory[place] for at, place in enumerate(positions) if place in state.memory},
        state.classes,
        state.version,
    )


def _layers(module: torch.nn.Module, layers: range = ALL_LAYERS) -> OrderedDict[str, torch.nn.Module]:
    """Return some layers by their names. A layer that is there twice has two."""
    return OrderedDict(islice(module._modules.items(), layers.start, layers.stop))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class TorchStage:
    """A stage of a module: its layers, from the first one on.

    Attributes:
        layers: which of the module's.
        is_last: whether the loss follows.
    """

    job: TorchModule
    layers: range
    is_last: bool

    def forward(
        self, state: TorchState, count: int, rows: Rows | None, given: Passed | None, draw: int
    ) -> TorchPass:
        """Return the way of a piece through the layers.

        Args:
            state: of this stage.
            count: how many rows the piece has.
            rows: of the piece; None where this stage is neither the first nor the last.
            given: what the stage before gave; None: this is the first.
            draw: of the piece in this step.
        """
        import torch

        module = ready_module(self.job, state)
        module.train(count > 1 or not normalises(module))
        parameters = {name: each.detach().requires_grad_() for name, each in state.parameters.items()}
        numbers = {**parameters, **{name: each.clone() for name, each in state.buffers.items()}}
        inputs = None
        if given is None:
            assert rows is not None
            entering = torch.from_numpy(rows.features.astype(np.float32))
        else:
            inputs = torch.as_tensor(given.values).requires_grad_()
            entering = inputs.clone()  # a layer may change what it gets
        layers = torch.nn.Sequential(_layers(module, self.layers))
        with drawn(draw):
            if given is not None and given.draws is not None:
                torch.set_rng_state(torch.from_numpy(given.draws))
            before = torch.get_rng_state()
            outputs = torch.func.functional_call(layers, numbers, (entering,))
            after = torch.get_rng_state()
        draws = None if given is None else given.draws
        if not torch.equal(before, after):
            draws = after.numpy()
        if getattr(outputs, "dtype", None) not in (torch.float16, torch.float32, torch.float64):
            what = getattr(outputs, "dtype", type(outputs).__name__)
            raise DataError(
                f"layer {self.layers.stop - 1} of {self.job.place!r} gives {what}; only a tensor of floats "
                "with 16, 32 or 64 bits can go from stage to stage, so cut elsewhere"
            )
        kept = tuple(count * same_shape(name, numbers[name], each) for name, each in state.buffers.items())
        loss = None
        if self.is_last:
            assert rows is not None
            loss = loss_of(self.job, outputs, wanted_of(self.job, state, rows))
        return TorchPass(list(parameters.values()), inputs, outputs, loss, draws, kept)


@dataclass(frozen=True, slots=True)
class TorchPass:
    """A piece on its way through a stage: forward is done, and backward is to come.

    Attributes:
        inputs: None: it is the first stage.
        loss: None: it is not the last stage.
        draws: where the generator of random numbers stands, if any layer so far has drawn.
        kept: buffers times the piece's rows.
    """

    parameters: list[torch.Tensor]
    inputs: torch.Tensor | None
    outputs: torch.Tensor
    loss: torch.Tensor | None
    draws: NDArray[np.uint8] | None
    kept: Sums

    @property
    def passed(self) -> Passed:
        """What the next stage gets."""
        return Passed(self.outputs.detach().numpy(), self.draws)

    def backward(self, slopes: NDArray[np.floating] | None) -> tuple[Sums, NDArray[np.floating] | None]:
        """Return the stage's sums over the piece, and the slopes for the stage before.

        The sums are the loss, which is 0 before the last stage, the gradients, and the buffers.

        slopes: of the loss by the outputs; None: this is the last stage.
        """
        import torch

        wanted = self.parameters if self.inputs is None else [*self.parameters, self.inputs]
        if self.loss is not None:
            found = torch.autograd.grad(self.loss, wanted, allow_unused=True)
        else:
            found = torch.autograd.grad(self.outputs, wanted, torch.as_tensor(slopes), allow_unused=True)
        arrays = [
            (torch.zeros_like(each) if slope is None else slope).detach().numpy()
            for slope, each in zip(found, wanted, strict=True)
        ]
        before = arrays.pop() if self.inputs is not None else None
        loss = 0.0 if self.loss is None else float(self.loss.detach())
        return (np.asarray(loss), *arrays, *self.kept), before
