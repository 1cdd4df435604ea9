"""What a query may be asked for, and how a wrong value is refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import relaqs
from relaqs.arguments import ArgumentError, relative_error
from relaqs.queries.options import QueryOptions, watched


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("confidence", 0.5, "between 0.5 and 1"),
        ("confidence", 1.0, "between 0.5 and 1"),
        ("confidence", 95, "between 0.5 and 1"),
        ("confidence", float("nan"), "between 0.5 and 1"),
        ("confidence", "95%", "between 0.5 and 1"),
        ("target", "90%", "such as 0.01 for 1 %"),
        ("interval", "daily", "'pointwise' or 'anytime'"),
        ("confidence_for", "answer", "'cell' or 'table'"),
        ("confidence_for", True, "'cell' or 'table'"),
        ("fallback", None, "'exact' or 'error'"),
        ("priority", 0, "above 0"),
        ("priority", -1.0, "above 0"),
        ("priority", float("inf"), "above 0"),
        ("timeout", 0, "seconds above 0"),
        ("timeout", -3, "seconds above 0"),
        ("timeout", True, "seconds above 0"),
        ("seed", -1, "from 0 on"),
        ("seed", 1.5, "from 0 on"),
        ("batches", 0, "from 1 on"),
        ("batches", 2.0, "from 1 on"),
    ],
)
def test_a_value_that_is_not_accepted(name: str, value: object, accepted: str) -> None:
    with pytest.raises(ArgumentError, match=accepted) as caught:
        QueryOptions(**{name: value})  # type: ignore[arg-type]
    assert f"{name} is {value!r}; it must be" in str(caught.value)
    assert isinstance(caught.value, relaqs.RelaqsError)
    assert isinstance(caught.value, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_numbers_of_numpy_are_numbers() -> None:
    options = QueryOptions(confidence=np.float64(0.9), seed=np.int64(3), batches=np.int32(5))  # type: ignore[arg-type]
    assert (options.confidence, options.seed, options.batches) == (0.9, 3, 5)


@pytest.mark.parametrize(
    ("value", "share"),
    [(0.01, 0.01), ("1%", 0.01), (" 2.5 % ", 0.025), ("0.2", 0.2), (1.0, 1.0), ("100%", 1.0), (None, None)],
)
def test_a_relative_error_is_a_share(value: float | str | None, share: float | None) -> None:
    assert relative_error(value) == share


@pytest.mark.parametrize(
    "value", [0, -0.1, "0%", "-1%", "one", "1%%", "%", "", "nan", "inf", True, float("inf")]
)
def test_what_is_no_relative_error(value: float | str) -> None:
    with pytest.raises(ArgumentError, match="relative error above 0"):
        relative_error(value)


@pytest.mark.parametrize("value", ["5", "1.5", 5, 1.5, "1", 1, " 1 ", np.int64(1)])
def test_more_than_the_whole_lacks_a_percent_sign(value: float | str) -> None:
    with pytest.raises(ArgumentError, match=rf'for {str(value).strip()} % write "{str(value).strip()}%"'):
        relative_error(value)


@pytest.mark.parametrize("value", ["200%", 101, 1e6])
def test_no_target_is_more_than_the_whole(value: float | str) -> None:
    with pytest.raises(ArgumentError, match=r"a share up to 100%$"):
        relative_error(value)


def test_watch_is_names_or_a_function() -> None:
    def change(before: object, now: object) -> float:
        return 0.0

    assert watched("revenue") == ("revenue",)
    assert watched(["a", "b"]) == ("a", "b")
    assert watched(change) is change
    assert watched(None) is None
    for wrong in ([], [1], ["a", None]):
        with pytest.raises(ArgumentError, match="watch is"):
            watched(wrong)  # type: ignore[arg-type]
