"""The way from a client to the plugin on its scheduler: messages in order, and what happens if it breaks."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Awaitable, Callable

from distributed import Client
from distributed.comm.core import CommClosedError
from distributed.protocol import pickle
from relaqs_engine.errors import ClusterError, RelaqsError

from relaqs.executors.dask.connection import check_workers, workers_of
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
)
from relaqs.executors.dask.plugin import RelaqsPlugin
from relaqs.executors.dask.task import InterruptReleased
from relaqs.jobs.job import ClusterStatus
from relaqs.sharing.gangs import SlotPolicy
from relaqs.sharing.view import Policy

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
