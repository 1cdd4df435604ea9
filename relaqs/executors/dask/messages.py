"""What a client and the plugin on its scheduler say to each other, one way and in order.

The names by which clients, scheduler and workers reach each other, and the job in a task's key.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeAlias

from distributed.protocol import pickle
from relaqs_engine.duck import DUCKDB_VERSION

from relaqs.jobs.job import JobDescription, StepReport
from relaqs.sharing.gangs import Gang

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

KEY_PREFIX = "relaqs-"
STREAM_OP = "relaqs"  # messages of a client, one way, in order with its tasks
HELLO_RPC = "relaqs_hello"
STATUS_RPC = "relaqs_status"
STOP_RPC = "relaqs_stop"
CAP_RPC = "relaqs_cap"
SESSION_TOPIC = "relaqs-session-"  # with the session's name behind it: what the plugin tells that session
CORE_SECONDS = "relaqs-core-seconds"  # in a task's metadata
COMMON_INDEX = -1  # in the key of what a step's tasks have in common
FOREIGN = "foreign"  # the one job of all tasks of other programs
RELAQS_VERSION = version("relaqs")
RELEASE = ".".join(RELAQS_VERSION.split(".")[:2])  # what must agree: patches of it understand each other


def same_release(other: str) -> bool:
    """Whether a version of ReLAQS understands this one: at most its last number is another."""
    return ".".join(other.split(".")[:2]) == RELEASE


def versions() -> dict[str, str]:
    """Return the versions that must agree, since partial results of different ones must not be mixed.

    Of ReLAQS it is the release, without the number of its patch.
    """
    return {"relaqs": RELEASE, "duckdb": DUCKDB_VERSION}


def named_versions() -> str:
    """Return them in a line, as a task takes them along: workers may join after `check_workers`."""
    return ", ".join(f"{name} {version}" for name, version in versions().items())


@dataclass(frozen=True, slots=True)
class Hello:
    """What the plugin says of itself."""

    version: str
    policy: str
    slot_policy: str


def job_of(key: object) -> str | None:
    """Return the job's name on the cluster, from the key of one of its tasks. None: the task is not ours."""
    if isinstance(key, tuple) and isinstance(name := key[0], str) and name.startswith(KEY_PREFIX):
        return name
    return None


# From a client's session to the plugin. `job` is always the job's name on the cluster.


@dataclass(frozen=True, slots=True)
class Enter:
    """A job comes, or registers again with a scheduler that was started again."""

    description: JobDescription
    session: str


@dataclass(frozen=True, slots=True)
class StepFolded:
    """A step of a job was folded."""

    job: str
    report: StepReport


@dataclass(frozen=True, slots=True)
class SetWeight:
    """The user gives a job another priority."""

    job: str
    weight: float


@dataclass(frozen=True, slots=True)
class SetTarget:
    """The user gives a job another error or loss to stop at."""

    job: str
    target: float | None


@dataclass(frozen=True, slots=True)
class SetWaiting:
    """The user pauses a job or lets it go on."""

    job: str
    is_waiting: bool


@dataclass(frozen=True, slots=True)
class RunsWhole:
    """The task of a job's step runs as a whole. seconds: `Task.whole_seconds`."""

    job: str
    step: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Lease:
    """A gang wants to hold these slots and no others (`relaqs.executors.slot_desk`)."""

    job: str
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskTurn:
    """A gang wants to take its next turn on the slots that it holds.

    slots: those that it asks for with this turn, and holds until it asks again. Empty: it has a lease.
    number: what the answer says, too: the job may have asked for others meanwhile.
    """

    job: str
    slots: tuple[str, ...] = ()
    number: int = 0


@dataclass(frozen=True, slots=True)
class GangTold:
    """How a gang gets on. It is to be offered slots (`relaqs.executors.slot_desk`)."""

    job: str
    gang: Gang


@dataclass(frozen=True, slots=True)
class Leave:
    """A job is over."""

    job: str


@dataclass(frozen=True, slots=True)
class Share:
    """The tasks of this Dask client are a job of their own from now on, whatever program it is of."""

    name: str
    weight: float


@dataclass(frozen=True, slots=True)
class ShareNoMore:
    """The tasks of this Dask client count among those of other programs again."""


@dataclass(frozen=True, slots=True)
class Bye:
    """A session ends. Its client may have others."""

    session: str


Setting: TypeAlias = GangTold | Lease | AskTurn | SetWeight | SetTarget | SetWaiting
SETTINGS: tuple[type[Setting], ...] = (GangTold, Lease, AskTurn, SetWeight, SetTarget, SetWaiting)
"""What a scheduler that comes back must hear again: the newest one of each kind and job, in this order."""

Message: TypeAlias = Enter | StepFolded | Setting | RunsWhole | Leave | Share | ShareNoMore | Bye

# From the plugin to a session.


@dataclass(frozen=True, slots=True)
class Stops:
    """Jobs that the policy's plan stops."""

    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cap:
    """An operator limits how many tasks a job has at once."""

    job: str
    cores: int


@dataclass(frozen=True, slots=True)
class Leased:
    """A gang holds these slots now, and no others."""

    job: str
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotsOffered:
    """The slots that a gang is to train on from now on, and no others. Without any it waits."""

    job: str
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MayTurn:
    """A gang may take one turn more. number: of the asking."""

    job: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class SlotsLost:
    """Slots that a gang held, or waited for, are gone with their worker."""

    job: str
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoLeases:
    """Gangs cannot run on this cluster. why: the reason, for people."""

    job: str
    why: str


GangAnswer: TypeAlias = Leased | SlotsOffered | MayTurn | SlotsLost | NoLeases
"""What the plugin says to the driver of a gang."""

Answer: TypeAlias = Stops | Cap | GangAnswer


def tell_session(scheduler: Scheduler, session: str, answer: Answer) -> None:
    """Send an answer to one session, which is subscribed to the topic of its name."""
    scheduler.log_event(SESSION_TOPIC + session, pickle.dumps(answer))
