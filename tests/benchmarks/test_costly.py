"""The benchmark of costly functions counts what a killed program asks, and what a target takes."""

from benchmarks.costly import BATCH, CONCURRENCY, asked_after_kills, calls_to_target


def test_a_killed_program_asks_nothing_twice_that_it_kept() -> None:
    found = asked_after_kills(rows=200, kills=2, seed=1)
    assert found["right"]
    assert 0 <= found["twice"] <= found["under way at most"] <= 2 * BATCH * CONCURRENCY


def test_a_random_sample_takes_what_theory_gives_and_a_proxy_saves_half() -> None:
    found = calls_to_target(orders=1)
    # The estimated share is within 2 %, what it asks for within 2.5 %, and a step is 2 % larger or longer.
    assert abs(found["random"] / found["theory"] - 1) < 0.065
    assert found["proxy"] < 0.5 * found["theory"]
