"""The slot desk: two tiers of deciding, offers of what is free alone, and what the policies are told."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relaqs.executors.slot_desk import SlotDesk, planned
from relaqs.policies.registry import SLOT_POLICIES, make_slot_policy
from relaqs.sharing.gangs import Gang, SlotPlan, SlotView
from relaqs.slot_policies import EqualSlots

SLOTS = tuple(f"tcp://{host}:{port}/0" for host in ("a", "b") for port in (1, 2, 3, 4))
SPEED = (0.01, 0.001, 0.005, 0.0, 0.01, 0.0, 1.0)


def gang(name: str, passes: float = 0.0, **numbers: float) -> Gang:
    values = {"start_rows": 256.0, "rows_most": 256.0, "rows_asked": 256.0, "batch_rows": 256.0}
    losses = {"first_loss": 2.0, "loss": 2.0 / (1.0 + passes), "accuracy": 0.5}
    return Gang(
        name,
        slot_rows_least=32.0,
        passes_done=passes,
        rows_done=1e4 * passes,
        steps_done=40 * passes,
        slots_asked=4,
        speed=SPEED,
        **(values | losses | numbers),
    )


def desk_of(*names: str) -> SlotDesk:
    desk = SlotDesk()
    for seconds, name in enumerate(names):
        desk.take_in(gang(name), float(seconds))
    return desk


@pytest.mark.parametrize("name", list(SLOT_POLICIES))
def test_every_slot_policy_divides_what_the_sharing_policy_gives(name: str) -> None:
    """Of eight slots the gangs may have five together. Each is offered a power of two, and none twice."""
    desk, policy = desk_of("x", "y", "z"), make_slot_policy(name)
    held: dict[str, tuple[str, ...]] = {}
    for seconds in (5.0, 10.0, 15.0):
        view = desk.facts(seconds, SLOTS, held, count=5, asking=("x", "y", "z")).view()
        assert view.nodes.slots.sum() == 5
        plan, wrong = planned(policy, view)
        assert wrong is None
        desk.memory = plan.memory
        held = desk.offers(plan, SLOTS, held)
        offered = [slot for slots in held.values() for slot in slots]
        assert len(offered) == len({*offered}) <= 5
        assert offered
        assert all(len(slots).bit_count() <= 1 for slots in held.values())


def test_a_slot_is_offered_once_nobody_holds_it() -> None:
    """One gang has all slots of a plan for two. What the new one is offered, the old one has let go."""
    desk = desk_of("old", "new")
    held = {"old": SLOTS}
    plan = EqualSlots().plan(desk.facts(5.0, SLOTS, held, 8, ("old", "new")).view())
    first = desk.offers(plan, SLOTS, held)
    assert len(first["old"]) == 4
    assert first["new"] == ()
    second = desk.offers(plan, SLOTS, {"old": first["old"]})
    assert second["old"] == first["old"]
    assert len(second["new"]) == 4
    assert {*second["new"]}.isdisjoint(second["old"])


def test_gangs_that_are_to_swap_their_slots_train_on_where_they_are() -> None:
    """Neither place is free. Each keeps as many slots as it is to have, so none waits for the other."""
    desk = desk_of("x", "y")
    held = {"x": SLOTS[:4], "y": SLOTS[4:]}
    view = desk.facts(5.0, SLOTS, held, 8, ("x", "y")).view()
    swapped = SlotPlan.of(view, np.array([[0, 4], [4, 0]]), np.full(2, 256.0))
    assert desk.offers(swapped, SLOTS, held) == held


def test_who_does_not_ask_is_offered_nothing() -> None:
    desk = desk_of("paused", "running")
    view = desk.facts(5.0, SLOTS, {"paused": SLOTS[:2]}, 8, ("running",)).view()
    assert view.gangs.ids == ("running",)
    offers = desk.offers(EqualSlots().plan(view), SLOTS, {"paused": SLOTS[:2]})
    assert offers["paused"] == ()
    assert len(offers["running"]) == 4  # of the six that are free


def test_who_has_left_is_offered_nothing_by_the_plan_before() -> None:
    desk = desk_of("left", "there")
    plan = EqualSlots().plan(desk.facts(5.0, SLOTS, {}, 8, ("left", "there")).view())
    desk.leave("left")
    offers = desk.offers(plan, SLOTS, {})
    assert {name: len(slots) for name, slots in offers.items()} == {"there": 4}


def test_the_desk_counts_the_time_and_the_way_of_a_gang() -> None:
    desk = desk_of("x")
    desk.facts(2.0, SLOTS, {}, 8, ("x",)).view()
    assert desk.gang("x").waiting_since_seconds == 2.0
    desk.facts(5.0, SLOTS, {"x": SLOTS[:4]}, 8, ("x",)).view()
    desk.take_in(gang("x", passes=3.0), 6.0)
    known = desk.gang("x")
    assert (known.executed_seconds, known.attained_slot_seconds, known.slots_seen_most) == (3.0, 12.0, 4)
    assert math.isnan(known.waiting_since_seconds)
    desk.take_in(gang("x", passes=5.0), 7.0)
    desk.leave("x")
    assert "x" not in desk
    finished = desk_of_view(desk).finished
    assert finished[:, 5].tolist() == [2.0, 0.0]  # the passes that were left after each
    assert finished[:, 3].tolist() == [0.75, 1.0 - 1.0 / 6.0]


def desk_of_view(desk: SlotDesk) -> SlotView:
    return desk.facts(10.0, SLOTS, {}, 8, ()).view()


class Nonsense:
    name = "nonsense"

    def plan(self, view: SlotView) -> object:
        return "all of it"


def test_a_policy_that_gives_no_plan_is_named_and_slots_are_equal_meanwhile() -> None:
    view = desk_of("x", "y").facts(5.0, SLOTS, {}, 8, ("x", "y")).view()
    plan, wrong = planned(Nonsense(), view)  # type: ignore[arg-type]
    assert plan.slots_by_id() == {"x": 4, "y": 4}
    assert wrong is not None
    assert "slot policy 'nonsense' failed (TypeError(\"it returned 'all of it'" in wrong
