"""The way from a client to the plugin on its scheduler: messages in order, and what happens if it breaks.

Before it: connecting to a Dask cluster, and seeing that it can run this version of ReLAQS.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from distributed import Client, Security
from distributed.comm.addressing import resolve_address
from distributed.comm.core import CommClosedError, FatalCommClosedError
from distributed.comm.core import connect as open_comm
from distributed.protocol import pickle
from relaqs_engine.errors import ClusterError, RelaqsError

from relaqs.executors.dask.messages import (
    CAP_RPC,
    HELLO_RPC,
    RELAQS_VERSION,
    SESSION_TOPIC,
    STATUS_RPC,
    STOP_RPC,
    STREAM_OP,
    Answer,
    Bye,
    Hello,
    Message,
    same_release,
    versions,
)
from relaqs.executors.dask.plugin import RelaqsPlugin
from relaqs.executors.dask.task import InterruptReleased
from relaqs.jobs.job import ClusterStatus
from relaqs.sharing.gangs import SlotPolicy
from relaqs.sharing.view import Policy

ENCRYPTED = ("tls://", "wss://")  # addresses by which Dask speaks TLS
ANSWER_SECONDS = 10.0  # for a worker to tell its versions: the first time it imports all there is
ATTEMPT_SECONDS = 5.0  # for one attempt to find a scheduler again that went away
LOOK_SECONDS = 0.2  # between two looks at which workers are there


def connect(
    address: str, connect_seconds: float, reconnect_seconds: float, security: Security | None = None
) -> Client:
    """Return a client of our own, which does not become the process's default one.

    reconnect_seconds: how long it looks for a scheduler that went away. security: as `secured` gives it.
    """
    try:
        resolve_address(address)  # here a wrong one is told at once; a client of one takes seconds to close
        security = Security() if security is None else security  # what Dask's configuration says
        check_encryption(address, security)
        client = Client(
            address,
            timeout=connect_seconds,
            set_as_default=False,
            asynchronous=False,
            name="relaqs",
            security=security,
        )
    except ValueError as error:
        raise ClusterError(
            f"{address!r} is not the address of a Dask scheduler ({error}); write it as tcp://host:8786"
        ) from error
    except FatalCommClosedError as error:
        raise _other_certificates(address, error.__cause__ or error) from error
    except OSError as error:
        if "SSL" in str(error):  # it closed the connection before it had said why
            raise _other_certificates(address, error) from error
        raise ClusterError(
            f"no Dask scheduler answered at {address} within {connect_seconds:g} s ({error}); check the "
            "address (tls://… where the scheduler speaks TLS), that `dask scheduler` runs there, and that no "
            "firewall is between"
        ) from error
    client._timeout = reconnect_seconds  # Dask has one setting for both, and a restart takes longer
    _attempt_often(client)
    return client


def _attempt_often(client: Client) -> None:
    """Let a client look for its scheduler in short attempts. One that is there may take its time to answer.

    In one long attempt Dask doubles its pauses. A scheduler that is away for 10 s is then found 20 s later.
    """
    attempt = client._ensure_connected

    async def attempt_once_it_is_there(timeout: float) -> None:
        over_seconds = time.monotonic() + timeout
        if client.scheduler is not None:  # else the client is closed meanwhile
            seconds = min(timeout, ATTEMPT_SECONDS)
            found = await open_comm(client.scheduler.address, timeout=seconds, **client.connection_args)
            found.abort()
        await attempt(timeout=max(LOOK_SECONDS, over_seconds - time.monotonic()))

    client._ensure_connected = attempt_once_it_is_there  # type: ignore[method-assign, assignment]


def _other_certificates(address: str, error: BaseException) -> ClusterError:
    return ClusterError(
        f"the Dask scheduler at {address} and this process do not accept each other's certificate "
        f"({error}); give the authority that signed the scheduler's certificate, and a certificate signed by "
        "the scheduler's authority"
    )


def secured(security: Security | Mapping[str, Any]) -> Security:
    """Return it as a `Security` whose files can be read. Raises ClusterError if they cannot."""
    try:
        made = security if isinstance(security, Security) else Security(**security)
        made.get_connection_args("client")
    except (TypeError, ValueError, OSError) as error:
        raise ClusterError(
            f"security is {security!r}, which cannot be used ({error}); give a distributed.Security, or its "
            "arguments: tls_ca_file, tls_client_cert and tls_client_key, each the path of a PEM file"
        ) from error
    return made


def check_encryption(address: str, security: Security) -> None:
    """Raise ClusterError if the address asks for encryption and the security has no certificate, or reverse.

    Dask would try again and again.
    """
    is_encrypted = address.startswith(ENCRYPTED)
    arguments = security.get_connection_args("client")
    if is_encrypted and arguments.get("ssl_context") is None:
        raise ClusterError(
            f"{address} asks for TLS, and there is no certificate; give the files of the authority, the "
            "certificate and its key: security={'tls_ca_file': …, 'tls_client_cert': …, 'tls_client_key': "
            "…}, --tls-ca-file, --tls-cert and --tls-key, or Dask's own settings"
        )
    if not is_encrypted and arguments.get("require_encryption"):
        raise ClusterError(
            f"encryption is required, and {address} is without; write it as tls://host:8786, and start the "
            "scheduler with --tls-ca-file, --tls-cert and --tls-key"
        )


def checked(client: object) -> Client:
    """Return the user's client. Raises ClusterError if it cannot be used from other threads, or is closed."""
    if not isinstance(client, Client):
        raise TypeError(f"cluster is {client!r}; give a scheduler's address or a dask.distributed.Client")
    if client.asynchronous:
        raise ClusterError(
            "the client is asynchronous; give the scheduler's address, or a Client(asynchronous=False)"
        )
    if client.status != "running":
        raise ClusterError(f"the client is {client.status}; give one that is connected to a cluster")
    return client


async def check_workers(client: Client) -> None:
    """Raise ClusterError if a worker cannot import ReLAQS, or has another version of what must agree.

    A worker that goes away while it is asked is not judged. Nor is one that hangs, as long as another
    answers: it is given up once a task or a result is there (`silence`). To be called on the client's event
    loop.
    """
    wanted = versions()
    silent, answers = await answers_of_workers(client)
    for address, found in answers.items():
        if isinstance(found, Exception):
            raise ClusterError(
                f"the worker at {address} cannot run ReLAQS ({found}); install there what is here: {wanted}"
            )
        if found != wanted:
            raise ClusterError(
                f"the worker at {address} has {found}, this process {wanted}; install the same packages there"
            )
    if silent and not answers:
        raise ClusterError(
            f"none of the {len(silent)} workers answered within {ANSWER_SECONDS:g} s, such as the one at "
            f"{min(silent)}; see whether they hang, and start them again"
        )


async def answers_of_workers(client: Client) -> tuple[set[str], dict[str, object]]:
    """Return which workers are there and did not answer in time, and what the others said of their versions.

    A worker that could not tell them has its exception as its answer. One that went away has none.
    """
    present = await workers_of(client)
    asked = {address: asyncio.ensure_future(_versions_at(client, address)) for address in present}
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        while (waiting := [asked[each] for each in present if not asked[each].done()]) and (
            time.monotonic() < deadline
        ):
            await asyncio.wait(waiting, timeout=LOOK_SECONDS)
            present &= await workers_of(client)
        if any(_has_failed(asked[each]) for each in present):
            await asyncio.sleep(LOOK_SECONDS)  # a worker that dies may fail before the scheduler hears of it
            present &= await workers_of(client)
    finally:
        for task in asked.values():
            task.cancel()
    silent = {each for each in present if not asked[each].done()}
    return silent, {each: asked[each].result() for each in present - silent}


async def workers_of(client: Client) -> set[str]:
    """Return the addresses of the workers that the scheduler knows of now."""
    assert client.scheduler is not None  # it is connected
    return set(await client.scheduler.ncores())


async def _versions_at(client: Client, address: str) -> object:
    """Return the worker's versions, or the exception they gave; wait for ever for one that hangs."""
    while True:
        answers = await client.run(versions, workers=[address], on_error="return")
        if address in answers and not isinstance(answers[address], OSError):
            return answers[address]
        await asyncio.sleep(LOOK_SECONDS)  # its connection broke: it dies, or is asked again


def _has_failed(task: asyncio.Task[object]) -> bool:
    return task.done() and isinstance(task.result(), Exception)


POLL_SECONDS = 0.05  # how often to see whether a scheduler, or other workers, are there
PLUGIN_SECONDS = 2.0  # for workers to take a plugin; one that hangs takes it when it goes on
RESTART_SECONDS = 30.0  # for workers to end that somebody restarts


class Link:
    """A client's connection to the plugin. All methods run on the client's event loop.

    Dask's client connects again by itself to a scheduler that was restarted, which then knows of no plugin
    and no job. on_answer: called with what the plugin says. on_back: called when the plugin is there again.
    on_lost: with the reason, when Dask's client has given up, or the new scheduler cannot be used.
    on_restarted: called when somebody has restarted the workers, by `Client.restart`, which drops all tasks.
    """

    def __init__(
        self,
        client: Client,
        session: str,
        policy: Policy | None,
        slot_policy: SlotPolicy | None,
        *,
        on_answer: Callable[[Answer], None] = lambda answer: None,
        on_back: Callable[[], None] = lambda: None,
        on_lost: Callable[[ClusterError], None] = lambda error: None,
        on_restarted: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._session = session
        self._policy = policy
        self._slot_policy = slot_policy
        self._on_answer = on_answer
        self._on_back = on_back
        self._on_lost = on_lost
        self._on_restarted = on_restarted
        self._installs: list[Callable[[Client], Awaitable[None]]] = []
        self._restart: asyncio.Task[None] | None = None
        self._comm: object = None  # that of the scheduler whose plugin was prepared
        self._recovery: asyncio.Task[None] | None = None
        assert client.scheduler is not None  # it is connected
        self.address = str(client.scheduler.address)

    @property
    def is_up(self) -> bool:
        """Whether the plugin is known to be there. If it is not, it is looked for."""
        is_up = self._client.status == "running" and self._client.scheduler_comm is self._comm
        if not is_up and self._comm is not None and self._recovery is None:
            self._recovery = asyncio.ensure_future(self._recover())
        return is_up

    @property
    def is_out(self) -> bool:
        """Whether the client is closed, by whomever, or has given the scheduler up."""
        return self._client.status in ("closing", "closed")

    @property
    def takes_tasks(self) -> bool:
        """Whether tasks may be sent now; if not, `on_back` or `on_restarted` will be called."""
        return self.is_up and self._restart is None

    async def open(self) -> None:
        """Put on the cluster what runs there. Raises ClusterError if it cannot run this version of ReLAQS."""
        comm = self._client.scheduler_comm
        self._follow_answers()  # Dask sends this in the loop's next round: before what is told once this ends
        await check_workers(self._client)
        await self._install()
        await self._interrupt_released()
        for install in self._installs:
            await install(self._client)
        self._comm = comm

    async def install(self, install: Callable[[Client], Awaitable[None]]) -> None:
        """Put one thing more on the cluster, and on each scheduler that is started again, before any task."""
        await install(self._client)
        if install not in self._installs:
            self._installs.append(install)

    def tell(self, message: Message) -> None:
        """Send the plugin a message. Without a plugin it is lost, since a new one hears everything anyway."""
        if self.is_up:
            assert self._client.scheduler_comm is not None
            with contextlib.suppress(CommClosedError):
                self._client.scheduler_comm.send({"op": STREAM_OP, "message": pickle.dumps(message)})

    def note_restart(self) -> None:
        """Send no tasks until the workers of now are gone: what is sent to them dies with them."""
        if self._restart is None:
            self._restart = asyncio.ensure_future(self._wait_for_restart())

    async def status(self) -> ClusterStatus:
        """Return how the jobs of all clients stand."""
        status: ClusterStatus = pickle.loads(await getattr(self._client.scheduler, STATUS_RPC)())
        return status

    async def stop_job(self, job: str) -> str | None:
        """Stop a job of any client. Return why that cannot be."""
        why_not: str | None = await getattr(self._client.scheduler, STOP_RPC)(job=job)
        return why_not

    async def cap_job(self, job: str, cores: int) -> str | None:
        """Cap a job of any client. Return why that cannot be."""
        why_not: str | None = await getattr(self._client.scheduler, CAP_RPC)(job=job, cores=cores)
        return why_not

    def close(self) -> None:
        """End the session, and look for the scheduler no more."""
        self.tell(Bye(self._session))
        with contextlib.suppress(ValueError):  # it was never subscribed to
            self._client.unsubscribe_topic(SESSION_TOPIC + self._session)
        self._comm = None
        for task in (self._recovery, self._restart):
            if task is not None:
                task.cancel()

    def _follow_answers(self) -> None:
        """Hear what the plugin says to this session, such as that a gang's slots are lost.

        Only what is said from now on is heard. So it comes before jobs are told of.
        """
        taking = weakref.WeakMethod(self._take_event)  # Dask's client keeps what it calls for good

        def take(event: tuple[float, bytes]) -> None:
            if (on_event := taking()) is not None:
                on_event(event)

        self._client.subscribe_topic(SESSION_TOPIC + self._session, take)

    def _take_event(self, event: tuple[float, bytes]) -> None:
        _, pickled = event
        answer: Answer = pickle.loads(pickled)
        self._on_answer(answer)

    async def _install(self) -> None:
        policy, slot_policy = (
            None if wish is None else pickle.dumps(wish) for wish in (self._policy, self._slot_policy)
        )
        try:
            await self._client.register_plugin(RelaqsPlugin())
            hello = getattr(self._client.scheduler, HELLO_RPC)
            answer = await hello(
                client=self._client.id, session=self._session, policy=policy, slot_policy=slot_policy
            )
        except (OSError, ClusterError):
            raise
        except Exception as error:  # whatever it is, it was raised over there
            raise ClusterError(
                f"the Dask scheduler at {self.address} cannot run ReLAQS ({type(error).__name__}: {error}); "
                f"install relaqs {RELAQS_VERSION} where it runs, too, and start it again"
            ) from error
        if answer is None or not same_release(answer["version"]):
            there = "another plugin called relaqs" if answer is None else f"relaqs {answer['version']}"
            raise ClusterError(
                f"the Dask scheduler at {self.address} runs {there}, this process relaqs {RELAQS_VERSION}; "
                "install the same where the scheduler runs, and start it again"
            )
        self._check(Hello(**answer))

    async def _interrupt_released(self) -> None:
        """Let workers stop tasks that nobody waits for.

        The scheduler keeps the plugin first, for workers that come, and then tells those that are there. If
        one of them hangs or dies the first call fails; the second one finds the plugin kept.
        """
        with contextlib.suppress(OSError):  # also of the time that is over
            async with asyncio.timeout(PLUGIN_SECONDS):
                await self._client.register_plugin(InterruptReleased())
                return
        await self._client.register_plugin(InterruptReleased())

    def _check(self, hello: Hello) -> None:
        """Raise ClusterError if what the plugin said does not suit."""
        for wish, there, name in (
            (self._policy, hello.policy, "policy"),
            (self._slot_policy, hello.slot_policy, "slot_policy"),
        ):
            if wish is not None and there != wish.name:
                raise ClusterError(
                    f"a session on the cluster at {self.address} has chosen the {name} {there!r}, this one "
                    f"asks for {wish.name!r}; leave {name} out, or wait until that one is closed"
                )

    async def _wait_for_restart(self) -> None:
        try:
            with contextlib.suppress(OSError):  # gone altogether, or some worker just stays
                async with asyncio.timeout(RESTART_SECONDS):
                    old = await workers_of(self._client)
                    while old & await workers_of(self._client):
                        await asyncio.sleep(POLL_SECONDS)
        finally:
            self._restart = None
        self._on_restarted()

    async def _recover(self) -> None:
        """Wait for Dask's client to have a scheduler again, and prepare that one."""
        try:
            while not await self._is_back():
                await asyncio.sleep(POLL_SECONDS)
        except RelaqsError as error:
            self._on_lost(ClusterError(str(error)))
            return
        finally:
            self._recovery = None
        self._on_back()

    async def _is_back(self) -> bool:
        """Return whether the plugin is there again. Raises ClusterError if it will never be."""
        if self.is_out:
            raise self._gone()
        if self._client.status != "running" or self._client.scheduler_comm is self._comm:
            return self.is_up
        with contextlib.suppress(OSError):  # it is gone once more
            await self.open()
        return self.is_up

    def _gone(self) -> ClusterError:
        return ClusterError(
            f"the Dask scheduler at {self.address} does not answer any more; see whether it runs, and "
            "open another session with relaqs.connect"
        )
