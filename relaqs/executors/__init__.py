"""Where tasks run: threads of this process, or a Dask cluster, behind one contract (`jobs/executor.py`).

Knows tasks, cores and shares; knows nothing of SQL, estimates or quality. Only `dask` imports distributed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from relaqs.arguments import ArgumentError
from relaqs.executors.threads import ThreadExecutor
from relaqs.jobs.executor import Executor
from relaqs.policies import DEFAULT_POLICY
from relaqs.sharing.view import Policy

if TYPE_CHECKING:
    from distributed import Client, Security

    from relaqs.sharing.gangs import SlotPolicy


__all__ = ["Executor", "ThreadExecutor", "open_executor"]


def open_executor(
    cluster: str | Client | None = None,
    *,
    cores: int | None = None,
    policy: str | Policy = DEFAULT_POLICY,
    slot_policy: str | SlotPolicy | None = None,
    security: Security | Mapping[str, Any] | None = None,
) -> Executor:
    """Return an executor on the cluster, or on threads of this process where no cluster is given.

    Args:
        cluster: its scheduler's address, or a client of it.
        cores: how many threads, where there is no cluster.
        policy: who gets how many of the cores.
        slot_policy: who gets which slots of a cluster, of the gangs that train there.
        security: the certificates for a cluster that speaks TLS and is given by its address.

    Raises:
        ClusterError: the cluster cannot be used.
        ArgumentError: security is given without an address, or slot_policy without a cluster.
    """
    if security is not None and not isinstance(cluster, str):
        raise ArgumentError(
            "security is for a cluster that is given by its scheduler's address, as tls://host:8786; "
            "a client that is handed in has its own"
        )
    if slot_policy is not None and cluster is None:
        raise ArgumentError(
            f"slot_policy is {slot_policy!r}, but there is no cluster whose slots could be given; leave it "
            "out, or give cluster"
        )
    if cluster is None:
        return ThreadExecutor(cores, policy=policy)
    from relaqs.executors.dask import DaskExecutor  # half a second, which embedded users never pay

    return DaskExecutor(cluster, policy=policy, slot_policy=slot_policy, security=security)
