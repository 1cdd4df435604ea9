"""The names by which clients, scheduler and workers reach each other, and the job in a task's key."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

Mechanism = Literal["queue", "credits"]

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
    """Whether a version of ReLAQS understands this one: at most its last number is another.

    >>> same_release(RELAQS_VERSION), same_release("999.0.0")
    (True, False)
    """
    return ".".join(other.split(".")[:2]) == RELEASE


@dataclass(frozen=True, slots=True)
class Hello:
    """What the plugin says of itself. why_credits: why the fair queue is not used; None: it is used."""

    version: str
    policy: str
    slot_policy: str
    mechanism: Mechanism
    why_credits: str | None


def job_of(key: object) -> str | None:
    """Return the job's name on the cluster, from the key of one of its tasks. None: the task is not ours."""
    if isinstance(key, tuple) and isinstance(name := key[0], str) and name.startswith(KEY_PREFIX):
        return name
    return None
