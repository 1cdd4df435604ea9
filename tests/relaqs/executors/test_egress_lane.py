"""The lane of a worker: one letter at a time, answers to PULLs first, and never lost."""

from __future__ import annotations

import asyncio

from relaqs.executors.dask.peer_agent import EgressLane
from relaqs.jobs.executor import Haste


async def sent_in_order(lane: EgressLane, letters: list[tuple[str, Haste]]) -> list[str]:
    """Return the letters in the order in which they leave, where all come while the lane is taken."""
    sent: list[str] = []
    present = 0

    async def send(name: str, haste: Haste) -> None:
        nonlocal present
        async with lane.turn(haste):
            present += 1
            assert present == 1
            await asyncio.sleep(0)
            present -= 1
            sent.append(name)

    async with lane.turn("push"):
        tasks = [asyncio.create_task(send(*letter)) for letter in letters]
        await asyncio.sleep(0)  # all of them wait now
        for task, (name, _) in zip(tasks, letters, strict=True):
            if name == "given up":
                task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return sent


def test_pulls_leave_before_pushes_and_each_kind_in_its_order() -> None:
    letters: list[tuple[str, Haste]] = [("a", "push"), ("b", "pull"), ("c", "push"), ("d", "pull")]
    assert asyncio.run(sent_in_order(EgressLane(), letters)) == ["b", "d", "a", "c"]


def test_who_gives_up_does_not_keep_the_lane() -> None:
    letters: list[tuple[str, Haste]] = [
        ("given up", "pull"),
        ("a", "push"),
        ("given up", "push"),
        ("b", "push"),
    ]

    async def twice() -> list[list[str]]:
        lane = EgressLane()
        return [await sent_in_order(lane, letters) for _ in range(2)]

    assert asyncio.run(twice()) == [["a", "b"]] * 2


def test_who_is_cancelled_just_when_its_turn_comes_passes_it_on() -> None:
    async def run() -> str:
        lane = EgressLane()

        async def take() -> None:
            async with lane.turn("pull"):
                raise AssertionError("it was cancelled before")

        async with lane.turn("push"):
            waiting = asyncio.create_task(take())
            await asyncio.sleep(0)
        waiting.cancel()  # the turn was given to it, and it did not run yet
        await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(10), lane.turn("push"):
            return "free"

    assert asyncio.run(run()) == "free"
