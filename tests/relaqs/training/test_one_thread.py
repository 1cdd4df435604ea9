"""While tasks compute, linear algebra has one thread; afterwards it has what it had."""

from __future__ import annotations

from threadpoolctl import threadpool_info, threadpool_limits

from relaqs.training.passes import one_thread


def blas_threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_the_limit_holds_until_the_last_task_has_ended() -> None:
    with threadpool_limits(2, user_api="blas"):
        first, second = one_thread(), one_thread()
        assert blas_threads() == {2}
        first.__enter__()
        second.__enter__()
        assert blas_threads() == {1}
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {2}
