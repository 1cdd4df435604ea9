"""The names of interval columns: predictable, and never one that the query uses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from relaqs_engine.execution.estimate import approximate_columns

# Names that clash easily: with each other, by case, and with those that are made.
WORDS = st.sampled_from(["x", "X", "y", "x_low", "X_LOW", "x_low_", "x_high", "y_certified", "", "_", "é"])


@given(st.lists(WORDS, max_size=8), st.data())
def test_names_never_collide(names: list[str], data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.sampled_from(range(len(names))), unique=True)) if names else []
    made = [
        name
        for column in approximate_columns(names, sorted(positions))
        for name in (column.low, column.high, column.certified)
    ]
    assert len({name.lower() for name in made}) == len(made)
    assert {name.lower() for name in made} & {name.lower() for name in names} == set()


@given(st.lists(WORDS, max_size=8))
def test_every_approximate_column_keeps_its_name_and_place(names: list[str]) -> None:
    columns = approximate_columns(names, range(len(names)))
    assert [column.name for column in columns] == names
    assert [column.position for column in columns] == list(range(len(names)))


def test_names_are_the_plain_ones_unless_taken() -> None:
    (plain,) = approximate_columns(["g", "x"], [1])
    assert (plain.low, plain.high, plain.certified) == ("x_low", "x_high", "x_certified")
    (taken,) = approximate_columns(["x", "X_Low", "x_low_"], [0])
    assert (taken.low, taken.high, taken.certified) == ("x_low__", "x_high", "x_certified")


def test_two_columns_of_one_name_have_intervals_of_their_own() -> None:
    first, second = approximate_columns(["n", "n"], [0, 1])
    assert (first.low, second.low) == ("n_low", "n_low_")
