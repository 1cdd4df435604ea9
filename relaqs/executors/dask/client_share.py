"""A share of a cluster's cores for one Dask client, whose tasks may be of any program."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import uuid
from types import TracebackType
from typing import Self

from distributed import Client
from distributed.protocol import pickle
from relaqs_engine.errors import ClusterError

from relaqs.arguments import check_priority
from relaqs.executors.dask.connection import checked
from relaqs.executors.dask.messages import (
    HELLO_RPC,
    STREAM_OP,
    Bye,
    Message,
    Share,
    ShareNoMore,
    same_release,
)
from relaqs.executors.dask.plugin import RelaqsPlugin
from relaqs.jobs.executor import client_name
from relaqs.policies import chosen_policy
from relaqs.sharing.view import Policy


class ClientShare:
    """The share that a Dask client has of its cluster's cores, until it is closed. A context manager.

    `share_cores` makes one.
    """

    def __init__(self, client: Client, name: str, weight: float, policy: str | Policy) -> None:
        self._client = checked(client)
        self._name = name
        self._weight = check_priority(weight)
        self._session = uuid.uuid4().hex[:8]
        self._client.sync(self._open, chosen_policy(policy))

    @property
    def weight(self) -> float:
        """How much the client counts. Set it at any time: 2.0 counts twice as much as 1.0."""
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._weight = check_priority(weight)
        self._tell(Share(self._name, self._weight))

    def close(self) -> None:
        """Count among all other programs again. The second call does nothing."""
        self._tell(ShareNoMore())
        self._tell(Bye(self._session))

    async def _open(self, policy: Policy) -> None:
        await self._client.register_plugin(RelaqsPlugin())
        hello = getattr(self._client.scheduler, HELLO_RPC)
        answer = await hello(client=self._client.id, session=self._session, policy=pickle.dumps(policy))
        if answer is None or not same_release(answer["version"]):
            raise ClusterError(
                "the Dask scheduler has another plugin called relaqs, or another release of it; install the "
                "same there, and start it again"
            )
        if answer["policy"] != policy.name:
            raise ClusterError(
                f"a session on this cluster has chosen the policy {answer['policy']!r}, this one asks for "
                f"{policy.name!r}; give policy={answer['policy']!r}, or wait until that one is closed"
            )
        self._send(Share(self._name, self._weight))

    def _tell(self, message: Message) -> None:
        if self._client.status == "running":
            assert self._client.loop is not None  # it is connected
            self._client.loop.add_callback(self._send, message)

    def _send(self, message: Message) -> None:
        assert self._client.scheduler_comm is not None  # it is connected
        self._client.scheduler_comm.send({"op": STREAM_OP, "message": pickle.dumps(message)})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def share_cores(
    client: Client, weight: float = 1.0, *, name: str | None = None, policy: str | Policy = "weighted_fair"
) -> ClientShare:
    """Let a Dask client have its own share of the cluster's cores, whatever its tasks compute.

    Of the tasks that wait on the scheduler, the next is one of the client that is furthest behind its share.
    Clients that do not call this are one job together, of weight 1. The workers need no ReLAQS.

    Args:
        client: a connected `dask.distributed.Client`, not an asynchronous one.
        weight: with 2.0 it gets twice the cores of one with 1.0, while both have tasks that wait.
        name: for people, in `relaqs cluster list`; by default the process's.
        policy: who gets how much. All programs of a cluster have the same.

    Raises:
        ClusterError: the client is closed, or the cluster has another policy, or another release.
        ArgumentError: the weight is none.

    >>> from dask.distributed import Client
    >>> from relaqs.dask import share_cores
    >>> with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as client:
    ...     with share_cores(client, weight=3.0):
    ...         sum(client.gather(client.map(abs, range(-3, 0))))
    6
    """
    return ClientShare(client, name or client_name(), weight, policy)
