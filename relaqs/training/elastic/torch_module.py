"""Modules of PyTorch, trained by mini-batches over the rows of a SELECT. torch is imported where needed.

A `TorchModule` is made by a function that all workers can import. Its steps are sums over pieces of rows, so
that any number of ranks or parts share them, to the bit: a whole module is a single stage of layers
(`TorchStage`), and a module that is cut has several. `ModuleSteps` trains a user's own instance with the
user's own loss and optimiser: a step is one forward and one backward pass over all its rows, as in a loop of
the user's own.
"""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from relaqs_engine.errors import DataError

from relaqs.arguments import ArgumentError, check_not_negative, check_positive
from relaqs.plugins import require
from relaqs.training.protocol import Learner, MiniBatches, WholeSteps
from relaqs.training.rows import Profile, Rows, Sums, class_codes, known_classes, numeric_target, right_of

if TYPE_CHECKING:
    import torch

    from relaqs.training.parted.placing import ModelCut

CLASS_LOSSES = ("cross_entropy", "binary_cross_entropy_with_logits")
NUMBER_LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss")
OPTIMISERS = ("sgd", "adam", "adamw")

_DRAWING = threading.Lock()  # torch draws from one generator of the process
_BUILT = threading.local()


@dataclass(frozen=True, slots=True)
class TorchState:
    """A module's numbers, and what its optimiser remembers.

    Attributes:
        parameters: by name, and so are `buffers`.
        memory: the optimiser's own state by parameter.
        classes: to tell apart, if any.
        version: of torch, which must be the same everywhere.
    """

    parameters: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    memory: dict[int, Any]
    classes: NDArray[Any] | None
    version: str


@dataclass(frozen=True, slots=True)
class TorchModule(MiniBatches):
    """A module of PyTorch. The result is the module itself, ready to evaluate; `classes_` are its classes.

    The module is called with the features as 32-bit floats, shape (rows, features). The losses are those of
    `torch.nn.functional`. A piece of a step is computed by one call, so what normalises batches sees pieces.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature. Scale the features in SQL.
        target: the column of classes or numbers.
        module: a function without arguments that makes the module, or its place, "package.module:function".
            It must be importable wherever training runs.
        loss: for classes "cross_entropy", with an output for each, or for two classes
            "binary_cross_entropy_with_logits", with one output; for numbers "mse_loss", "l1_loss" or
            "smooth_l1_loss".
        optimizer: "sgd", "adam" or "adamw". For the last two give `scaling="sqrt"`.
        first_rate: the learning rate of a step of `start_rows` rows.
        momentum: of "sgd".
        penalty: the optimiser's weight decay.
        start_rows: and all that `MiniBatches` has.

    >>> from relaqs.training import TorchModule
    >>> sql = "SELECT -x / 1000 AS x, -x / 2000 AS y FROM numbers"
    >>> job = TorchModule(sql, "y", "torch.nn:PReLU", loss="mse_loss", first_rate=0.1)
    >>> module = db.train(job).result()  # it has learned the slope of negative numbers
    >>> round(module.weight.item(), 2)
    0.5
    """

    sql: str
    target: str
    module: str | Callable[[], torch.nn.Module]
    loss: str = "cross_entropy"
    optimizer: str = "sgd"
    first_rate: float = 0.01
    momentum: float = 0.9
    penalty: float = 0.0

    def __post_init__(self) -> None:
        MiniBatches.__post_init__(self)
        require("torch")
        for name, known in (("loss", (*CLASS_LOSSES, *NUMBER_LOSSES)), ("optimizer", OPTIMISERS)):
            if getattr(self, name) not in known:
                raise ArgumentError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(known)}"
                )
        check_positive("first_rate", self.first_rate)
        check_not_negative("momentum", self.momentum)
        check_not_negative("penalty", self.penalty)
        object.__setattr__(self, "module", _place(self.module))
        module = made_module(self.place)
        if not any(True for _ in module.parameters()):
            raise ArgumentError(
                f"module is {self.place!r}, which has no parameters; there is nothing to train"
            )
        if self.start_rows == 1 and normalises(module):
            raise ArgumentError(
                "start_rows is 1, and the module normalises batches, which needs two rows; give more rows"
            )

    @property
    def place(self) -> str:
        """Where the function is that makes the module: "package.module:function"."""
        assert isinstance(self.module, str)
        return self.module

    @property
    def tells_classes(self) -> bool:
        """Whether the loss is one of classes."""
        return self.loss in CLASS_LOSSES

    def begin(self, profile: Profile) -> TorchState:
        import torch

        classes = known_classes(profile, self.target) if self.loss in CLASS_LOSSES else None
        if classes is None:
            numeric_target(profile, self.target)
        elif self.loss == "binary_cross_entropy_with_logits" and len(classes) > 2:
            raise DataError(
                f"{self.target!r} has {len(classes)} classes; for more than two use cross_entropy"
            )
        module = _new(self.place, self.seed)
        state = TorchState(
            {name: each.detach().clone() for name, each in module.named_parameters()},
            {name: each.detach().clone() for name, each in module.named_buffers()},
            {},
            classes,
            torch.__version__,
        )
        self._check_takes(module, len(profile.names), classes)
        return state

    def rate(self, progress: float) -> float:
        return self.first_rate

    def partial(self, state: TorchState, rows: Rows, draw: int) -> Sums:
        """Return the loss, its gradient for each parameter, and the buffers times the rows."""
        sums, _ = TorchStage(self, None, is_last=True).forward(state, len(rows), rows, None, draw).backward()
        return sums

    def gradients(self, sums: Sums) -> Sums:
        return sums[1 : 1 + len(list(made_module(self.place).parameters()))]

    def update(self, state: TorchState, sums: Sums, rows: int, rate: float) -> TorchState:
        import torch

        parameters = {name: each.detach().clone() for name, each in state.parameters.items()}
        for parameter, slope in zip(parameters.values(), sums[1:], strict=False):
            parameter.grad = torch.as_tensor(slope) / rows
        optimiser = self._optimiser(list(parameters.values()), rate)
        if state.memory:
            groups = optimiser.state_dict()["param_groups"]
            optimiser.load_state_dict({"state": copy.deepcopy(state.memory), "param_groups": groups})
        optimiser.step()
        for parameter in parameters.values():
            parameter.grad = None
        buffers = {
            name: torch.as_tensor(total / rows).to(before.dtype)
            for (name, before), total in zip(state.buffers.items(), sums[1 + len(parameters) :], strict=True)
        }
        memory = optimiser.state_dict()["state"]
        return TorchState(parameters, buffers, memory, state.classes, state.version)

    def evaluate(self, state: TorchState, rows: Rows) -> Sums:
        import torch

        module = ready_module(self, state).eval()
        with torch.no_grad():
            features = torch.from_numpy(rows.features.astype(np.float32))
            outputs = torch.func.functional_call(module, {**state.parameters, **state.buffers}, (features,))
            loss = np.asarray(float(loss_of(self, outputs, wanted_of(self, state, rows))))
        if state.classes is None:
            return (loss,)
        scores = outputs.numpy().reshape(len(rows), -1)
        return loss, np.asarray(float(right_of(scores, state.classes, rows.target)))

    def estimator(self, profile: Profile, state: TorchState) -> torch.nn.Module:
        module = _new(self.place, self.seed)
        module.load_state_dict({**state.parameters, **state.buffers}, strict=False)
        if state.classes is not None:
            module.classes_ = state.classes  # type: ignore[assignment]
        return module.eval()

    def _check_takes(self, module: torch.nn.Module, features: int, classes: NDArray[Any] | None) -> None:
        """Raise DataError where the module cannot take rows of so many features, or tell these classes."""
        import torch

        try:
            with torch.no_grad(), drawn(self.seed):
                outputs = module.eval()(torch.zeros(2, features))
        except RuntimeError as error:
            raise DataError(
                f"module is {self.place!r}, which cannot take the {features} features of the SELECT "
                f"({error}); select as many columns as it takes, and the target"
            ) from error
        shape = tuple(getattr(outputs, "shape", ()))
        if classes is None or self.loss != "cross_entropy" or (len(shape) == 2 and shape[1] >= len(classes)):
            return
        raise DataError(
            f"module is {self.place!r}, which gives {shape} for 2 rows, and {self.target!r} has "
            f"{len(classes)} classes; cross_entropy takes an output for each"
        )

    def _optimiser(self, parameters: list[torch.Tensor], rate: float) -> torch.optim.Optimizer:
        import torch

        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, rate, momentum=self.momentum, weight_decay=self.penalty)
        kind = torch.optim.Adam if self.optimizer == "adam" else torch.optim.AdamW
        return kind(parameters, rate, weight_decay=self.penalty)


def ready_module(job: TorchModule, state: TorchState) -> torch.nn.Module:
    """Return the module of this thread, which computes on one core."""
    import torch

    if torch.__version__ != state.version:
        raise DataError(
            f"torch is {torch.__version__} here, but {state.version} where training began; "
            "install the same version on all machines"
        )
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    return made_module(job.place)


def wanted_of(job: TorchModule, state: TorchState, rows: Rows) -> torch.Tensor:
    """Return what is to be predicted for some rows: numbers, or the codes of classes."""
    import torch

    assert rows.target is not None
    if state.classes is None:
        return torch.as_tensor(rows.target.astype(np.float32))
    codes = torch.as_tensor(class_codes(rows.target, state.classes))
    return codes if job.loss == "cross_entropy" else codes.float()


def loss_of(job: TorchModule, outputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return the loss, summed over rows."""
    import torch

    if job.loss != "cross_entropy":
        if outputs.numel() != len(wanted):
            raise DataError(
                f"the module gives {tuple(outputs.shape)} for {len(wanted)} rows; {job.loss} takes one "
                "output a row"
            )
        outputs = outputs.reshape(-1)
    loss: torch.Tensor = getattr(torch.nn.functional, job.loss)(outputs, wanted, reduction="sum")
    return loss


def _place(module: object) -> str:
    """Return where the function is that makes a module. Raises ArgumentError where it cannot be imported."""
    place = module
    if callable(module):
        place = f"{getattr(module, '__module__', '?')}:{getattr(module, '__qualname__', '?')}"
    if not isinstance(place, str) or ":" not in place:
        raise ArgumentError(
            f"module is {module!r}; give a function that makes the module, or its place, such as "
            "'package.module:function'"
        )
    if "<" in place or place.startswith("__main__:"):
        raise ArgumentError(
            f"module is {place}, which workers cannot import; put the function into a file of a package "
            "that they have"
        )
    return place


def made_module(place: str) -> torch.nn.Module:
    """Return this thread's module of a function, made once."""
    kept: dict[str, torch.nn.Module] = _BUILT.__dict__
    if place not in kept:
        kept[place] = _new(place, seed=0)
    return kept[place]


def _new(place: str, seed: int) -> torch.nn.Module:
    """Return the module that a function makes, its numbers drawn by a seed.

    Raises ArgumentError where the function cannot be imported or makes something else.
    """
    import torch

    try:
        make = _found(place)
        with drawn(seed):
            module = make()
    except (ImportError, AttributeError) as error:
        raise ArgumentError(
            f"module is {place!r}, which cannot be imported here ({error}); install it on all machines"
        ) from error
    except TypeError as error:
        raise ArgumentError(f"module is {place!r}, which cannot be made: {error}") from error
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(f"module is {place!r}, which makes {module!r}, and not a torch.nn.Module")
    return module


def _found(place: str) -> Any:
    """Return what has a place such as "package.module:function"."""
    home, name = place.split(":", 1)
    found: Any = import_module(home)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def normalises(module: torch.nn.Module) -> bool:
    """Return whether the module normalises by the rows of a batch."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return any(isinstance(each, _BatchNorm) for each in module.modules())


@contextmanager
def drawn(seed: int) -> Iterator[None]:
    """Let torch draw by a seed, and leave the process's own draws as they were."""
    import torch

    with _DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def same_shape(name: str, buffer: torch.Tensor, before: torch.Tensor) -> NDArray[Any]:
    if buffer.shape != before.shape:
        raise DataError(
            f"the buffer {name!r} changed its shape from {tuple(before.shape)} to {tuple(buffer.shape)}; "
            "buffers must keep theirs"
        )
    return buffer.double().numpy()


ALL_LAYERS = range(sys.maxsize)


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
        layers: which of the module's. None: it is the whole module, which need not have layers.
        is_last: whether the loss follows.
    """

    job: TorchModule
    layers: range | None
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
        module.train(count > 1 or not normalises(module))  # a lone row has no spread to normalise by
        parameters = {name: each.detach().requires_grad_() for name, each in state.parameters.items()}
        numbers = {**parameters, **{name: each.clone() for name, each in state.buffers.items()}}
        inputs = None
        if given is None:
            assert rows is not None
            entering = torch.from_numpy(rows.features.astype(np.float32))
        else:
            inputs = torch.as_tensor(given.values).requires_grad_()
            entering = inputs.clone()  # a layer may change what it gets
        own = module if self.layers is None else torch.nn.Sequential(_layers(module, self.layers))
        with drawn(draw):
            if given is not None and given.draws is not None:
                torch.set_rng_state(torch.from_numpy(given.draws))
            before = torch.get_rng_state()
            outputs = torch.func.functional_call(own, numbers, (entering,))
            after = torch.get_rng_state()
        draws = None if given is None else given.draws
        if not torch.equal(before, after):
            draws = after.numpy()
        if self.layers is not None and getattr(outputs, "dtype", None) not in (
            torch.float16,
            torch.float32,
            torch.float64,
        ):
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

    def backward(
        self, slopes: NDArray[np.floating] | None = None
    ) -> tuple[Sums, NDArray[np.floating] | None]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSteps(WholeSteps):
    """A user's own module, trained by the user's own loss and optimiser. The result is a trained copy.

    Args:
        sql, target: as `MiniBatchTraining` has them. Features are 32-bit floats, shape (rows, features).
        packed: the module, the optimiser, and the schedule, a function that makes it, or None, pickled
            together.
        loss: a function of outputs and targets, such as torch.nn.CrossEntropyLoss(). A loss of classes gets
            their positions in `classes_`; others get 32-bit floats.
    """

    sql: str
    target: str
    packed: bytes
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    name: str
    start_rows: int = 1024

    @property
    def label(self) -> str:
        return self.name

    @property
    def tells_classes(self) -> bool:
        """Whether the loss is one of classes."""
        return _takes_positions(self.loss) or _takes_logits(self.loss)

    def begin(self, profile: Profile) -> bytes:
        import torch

        classes = known_classes(profile, self.target) if self.tells_classes else None
        if classes is None:
            numeric_target(profile, self.target)
        elif not _takes_positions(self.loss) and len(classes) > 2:
            raise DataError(
                f"{self.target!r} has {len(classes)} classes; for more than two use CrossEntropyLoss"
            )
        module, optimiser, schedule = pickle.loads(self.packed)
        try:
            with torch.no_grad(), drawn(self.seed):
                module.eval()(torch.zeros(2, len(profile.names)))
        except RuntimeError as error:
            raise DataError(
                f"the module {self.name} cannot take the {len(profile.names)} features of the SELECT "
                f"({error}); select as many columns as it takes, and the target"
            ) from error
        import cloudpickle

        return cast(bytes, cloudpickle.dumps((module, optimiser, schedule, classes)))

    def learner(self, state: bytes) -> Learner:
        return _ModuleLearner(self, *pickle.loads(state))

    def estimator(self, profile: Profile, state: bytes) -> torch.nn.Module:
        module, _, _, classes = pickle.loads(state)
        if classes is not None:
            module.classes_ = classes
        return cast("torch.nn.Module", module.eval())


class _ModuleLearner:
    """A module between two steps, with its optimiser and its schedule."""

    def __init__(
        self, job: ModuleSteps, module: Any, optimiser: Any, schedule: Any, classes: NDArray[Any] | None
    ) -> None:
        import torch

        self._job, self._module, self._optimiser = job, module, optimiser
        is_made = schedule is None or hasattr(schedule, "step")
        self._schedule = schedule if is_made else schedule(optimiser)
        self._classes = classes
        self._normalises = normalises(module)
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)

    def step(self, rows: Rows, draw: int) -> float:
        import torch

        self._module.train(len(rows) > 1 or not self._normalises)  # a lone row has no spread to normalise by
        features, wanted = self._tensors(rows)
        first: list[float] = []  # an optimiser may ask for the loss more than once

        def loss_of_step() -> torch.Tensor:
            self._optimiser.zero_grad()
            loss = self._loss(self._module(features), wanted)
            torch.autograd.backward(loss)
            first.append(float(loss.detach()))
            return loss

        with drawn(draw):
            self._optimiser.step(loss_of_step)
        if self._schedule is not None:
            self._schedule.step()
        return first[0] if _sums(self._job.loss) else first[0] * len(rows)

    def state(self) -> bytes:
        import cloudpickle

        self._optimiser.zero_grad()
        held = (self._module, self._optimiser, self._schedule, self._classes)
        return cast(bytes, cloudpickle.dumps(held))

    def evaluated(self, rows: Rows) -> Sums:
        """Return the loss of held-out rows, and how many are told rightly where they have classes."""
        import torch

        features, wanted = self._tensors(rows)
        with torch.no_grad():
            outputs = self._module.eval()(features)
            loss = float(self._loss(outputs, wanted))
        total = np.asarray(loss if _sums(self._job.loss) else loss * len(rows))
        if self._classes is None:
            return (total,)
        scores = outputs.numpy().reshape(len(rows), -1)
        return total, np.asarray(float(right_of(scores, self._classes, rows.target)))

    def _tensors(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        assert rows.target is not None
        wanted = rows.target if self._classes is None else class_codes(rows.target, self._classes)
        targets = torch.as_tensor(wanted if _takes_positions(self._job.loss) else wanted.astype(np.float32))
        return torch.from_numpy(rows.features.astype(np.float32)), targets

    def _loss(self, outputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        if tuple(outputs.shape) == (len(wanted), 1):  # or a loss would set each row against each other
            outputs = outputs.reshape(-1)
        loss = self._job.loss(outputs, wanted)
        if loss.numel() != 1:
            raise DataError(
                f"the loss gives {tuple(loss.shape)} for {len(wanted)} rows; it must be one number, as with "
                "reduction='mean'"
            )
        return loss


def _takes_positions(loss: object) -> bool:
    """Return whether a loss takes the positions of classes."""
    import torch

    functions = (torch.nn.functional.cross_entropy, torch.nn.functional.nll_loss)
    kinds = torch.nn.CrossEntropyLoss | torch.nn.NLLLoss | torch.nn.MultiMarginLoss
    return isinstance(loss, kinds) or loss in functions


def _takes_logits(loss: object) -> bool:
    """Return whether a loss takes the log odds of the second of two classes."""
    import torch

    functional = torch.nn.functional.binary_cross_entropy_with_logits
    return isinstance(loss, torch.nn.BCEWithLogitsLoss) or loss is functional


def _sums(loss: object) -> bool:
    return getattr(loss, "reduction", "mean") == "sum"


def module_steps(
    module: torch.nn.Module,
    sql: str,
    target: str | None,
    loss: Any,
    optimizer: Any,
    schedule: Any,
    numbers: Mapping[str, Any],
) -> ModuleSteps:
    """Return the job of a module that a user gave.

    Args:
        numbers: what is said of its mini-batches.

    Raises ArgumentError where its loss or its optimiser is none.
    """
    import cloudpickle
    import torch

    name = type(module).__name__
    if target is None:
        raise ArgumentError("target is None, but a module predicts a column; give its name")
    if not callable(loss):
        raise ArgumentError(
            f"loss is {loss!r}; give a function of outputs and targets, such as loss=torch.nn.MSELoss()"
        )
    parameters = list(module.parameters())
    if not parameters:
        raise ArgumentError(f"the module {name} has no parameters; there is nothing to train")
    optimiser = optimizer
    if not isinstance(optimiser, torch.optim.Optimizer):
        if not callable(optimiser):
            raise ArgumentError(
                f"optimizer is {optimiser!r}; give an optimiser of the module's parameters, or a function of "
                "them that returns one, such as optimizer=partial(torch.optim.AdamW, lr=0.001)"
            )
        optimiser = optimiser(parameters)
    if not {id(each) for group in optimiser.param_groups for each in group["params"]} <= set(
        map(id, parameters)
    ):
        raise ArgumentError(
            "the optimizer has parameters that are none of the module's; make it of module.parameters()"
        )
    return ModuleSteps(
        sql=sql,
        target=target,
        packed=cloudpickle.dumps((module, optimiser, schedule)),
        loss=loss,
        name=name,
        **numbers,
    )
