"""Two plain Dask clients with weights share a cluster's cores by them. Neither has a query."""

from __future__ import annotations

import time
from collections.abc import Iterator

import dask
import pytest
from distributed import Client, Future, Scheduler

from relaqs import ClusterError
from relaqs.dask import share_cores
from relaqs.executors.dask import DaskExecutor
from tests.relaqs.executors.clusters import eventually, running_cluster


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster") / "log", workers=2) as address:
        yield address


def _compute(number: int) -> int:
    started = time.thread_time()
    while time.thread_time() - started < 0.02:
        pass
    return number


def _done(futures: list[Future[int]]) -> int:
    return sum(future.done() for future in futures)


@pytest.mark.slow
def test_cores_follow_the_weights_of_clients(address: str) -> None:
    with (
        Client(address, set_as_default=False) as first,
        Client(address, set_as_default=False) as second,
        share_cores(first, weight=1.0, name="first"),
        share_cores(second, weight=3.0, name="second"),
    ):
        early = first.map(_compute, range(1_000), pure=False)
        late = second.map(_compute, range(300), pure=False)
        eventually(lambda: _done(late) == 300)
        # Without weights all of `early`, which came first, would be done. With 1 : 3 there are 100, and those
        # that ran before `late` came and beside its last ones.
        assert 70 <= _done(early) <= 180
        executor = DaskExecutor(address)
        shares = {job.name: job for job in executor.status().jobs}
        executor.close()
        assert shares["first"].weight == 1.0
        assert shares["second"].weight == 3.0
        assert shares["first"].attained_core_seconds > 0
        first.cancel(early)


def test_a_weight_can_be_changed_and_given_back(address: str) -> None:
    executor = DaskExecutor(address)
    with Client(address, set_as_default=False) as client:
        share = share_cores(client, name="mine")
        share.weight = 5.0
        eventually(lambda: [job.weight for job in executor.status().jobs if job.name == "mine"] == [5.0])
        assert client.submit(sum, [1, 2]).result() == 3
        share.close()
        share.close()
        eventually(lambda: "mine" not in [job.name for job in executor.status().jobs])
        assert client.submit(sum, [3, 4]).result() == 7
    executor.close()


def test_dependent_tasks_keep_their_results(address: str) -> None:
    with Client(address, set_as_default=False) as client, share_cores(client, weight=2.0):
        numbers = client.map(_compute, range(20), pure=False)
        assert client.submit(sum, numbers).result() == sum(range(20))


def test_data_in_a_graph_do_no_harm(address: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A graph may hold values, as those of `dask.dataframe.from_pandas`, beside tasks. Nothing is logged."""
    with Client(address, set_as_default=False) as client, share_cores(client, name="with data") as share:
        values = dask.delayed(list(range(2_000)))  # a node of the graph
        numbers = [dask.delayed(_compute)(i, dask_key_name=f"in-the-graph-{i}") for i in range(10)]
        total = dask.delayed(lambda data, *others: sum(data) + sum(others))(values, *numbers)
        assert client.compute(total).result() == sum(range(2_000)) + sum(range(10))
        client.run_on_scheduler(_check_roots_wait)
        share.close()
    logs = [log.read_text() for log in tmp_path_factory.getbasetemp().glob("cluster*/log")]
    assert not any("AttributeError" in log for log in logs)


def _check_roots_wait(dask_scheduler: Scheduler) -> None:
    """Check that what depends on nothing waits on the scheduler for its turn."""
    roots = [task for task in dask_scheduler.tasks.values() if not task.dependencies and task.run_spec]
    assert all(task.run_spec.data_producer for task in roots)


def test_a_client_that_goes_leaves_no_job(address: str) -> None:
    executor = DaskExecutor(address)
    client = Client(address, set_as_default=False)
    share_cores(client, name="gone")
    eventually(lambda: "gone" in [job.name for job in executor.status().jobs])
    client.close()
    eventually(lambda: "gone" not in [job.name for job in executor.status().jobs])
    executor.close()


@pytest.mark.slow
def test_another_policy_is_refused(address: str) -> None:
    with (
        Client(address, set_as_default=False) as first,
        Client(address, set_as_default=False) as second,
        share_cores(first),
        pytest.raises(ClusterError, match="give policy='weighted_fair'"),
    ):
        share_cores(second, policy="fifo")
