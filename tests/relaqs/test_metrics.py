"""What operators see of real queries: a scrape agrees with the status, each has its line and its spans."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

import relaqs
from relaqs.metrics import QueryLog, QueryRecord, Spans, Witness, asked_by, serve_metrics
from relaqs.metrics.query_log import LINE_FIELDS, LINE_VERSION
from tests.relaqs.executors.clusters import eventually

LONG = "SELECT sum(a.x * b.x % {n}) AS s FROM numbers AS a JOIN small AS b ON a.x % 7 <> b.x"
QUICK = "SELECT x % 3 AS k, count(*) AS n FROM numbers GROUP BY k"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("metrics")
    relaqs.shuffle(duckdb.sql("FROM range(200_000) AS t(x)"), folder / "numbers", partitions=100)
    relaqs.add_static(duckdb.sql("FROM range(3_000) AS t(x)"), folder / "small")
    return folder


@pytest.fixture
def db(warehouse: Path) -> Iterator[relaqs.Session]:
    with relaqs.connect(warehouse, threads=2, policy="fair") as session:
        yield session


Sample = tuple[str, tuple[tuple[str, str], ...]]


def _scraped(port: int) -> dict[Sample, float]:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _labels(job: relaqs.JobStatus) -> tuple[tuple[str, str], ...]:
    return ("job", job.id), ("kind", job.kind), ("name", job.name[:120]), ("user", job.user)


def test_a_scrape_under_load_agrees_with_the_status(db: relaqs.Session) -> None:
    with serve_metrics(db, port=0, cache=relaqs.Cache("none")) as server:
        running = [db.online_sql(LONG.format(n=n)) for n in (1001, 1002)]
        with asked_by("ann"):
            running.append(db.online_sql(LONG.format(n=1003)))
        paused = db.online_sql(LONG.format(n=1004))
        for query in running:
            next(iter(query))
        paused.pause()
        eventually(lambda: {job.state: job.share_cores for job in db.status().jobs}.get("paused") == 0.0)
        before, scrape, after = db.status(), _scraped(server.port), db.status()
        assert sorted(job.user for job in before.jobs) == ["", "", "", "ann"]
        for job, later in zip(before.jobs, after.jobs, strict=True):
            assert job.share_cores == pytest.approx(scrape["relaqs_job_share_cores", _labels(job)])
            attained = scrape["relaqs_job_core_seconds", _labels(job)]
            assert job.attained_core_seconds <= attained <= later.attained_core_seconds
            error = scrape.get(("relaqs_job_error", _labels(job)))
            if job.quality is not None and job.quality == later.quality:
                assert error == pytest.approx(job.quality)
        assert scrape["relaqs_jobs", (("state", "paused"),)] == 1.0
        assert scrape["relaqs_capacity_cores", ()] == 2.0
        spent = scrape["relaqs_core_seconds_total", (("kind", "query"),)]
        assert before.core_seconds["query"] <= spent <= after.core_seconds["query"]
        for query in (*running, paused):
            query.stop()
            query.wait()
        assert db.status().jobs == ()
        done = _scraped(server.port)
        assert done["relaqs_core_seconds_total", (("kind", "query"),)] >= spent
        stopped = ("kind", "mergeable"), ("outcome", "stopped")
        assert done["relaqs_queries_total", (*stopped, ("user", ""))] == 3.0
        assert done["relaqs_queries_total", (*stopped, ("user", "ann"))] == 1.0
        assert done["relaqs_first_answer_seconds_count", (("kind", "mergeable"),)] >= 3.0


def test_a_closed_session_is_down(warehouse: Path) -> None:
    db = relaqs.connect(warehouse, threads=1)
    with serve_metrics(db, port=0) as server:
        assert _scraped(server.port)["relaqs_up", ()] == 1.0
        db.close()
        assert _scraped(server.port)["relaqs_up", ()] == 0.0


def test_the_cache_is_measured(tmp_path: Path) -> None:
    duckdb.sql("FROM range(20_000) AS t(x)").write_parquet(str(tmp_path / "numbers.parquet"))
    cache = relaqs.Cache(tmp_path / "cache")
    with relaqs.connect(tmp_path / "numbers.parquet", cache_directory=cache.directory) as db:
        db.lay_out("numbers")
        with serve_metrics(db, port=0, cache=cache) as server:
            assert _scraped(server.port)["relaqs_cache_bytes", ()] == sum(
                entry.byte_count for entry in cache.entries()
            )


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_each_query_has_a_line_in_the_log(db: relaqs.Session, tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    with QueryLog(path) as log:
        db.witnesses.append(log)
        with asked_by("ann"):
            db.online_sql(QUICK).wait()
        stopped = db.online_sql("SELECT avg(x) AS mean FROM numbers", target="50%")
        stopped.wait()
        failing = db.online_sql("SELECT ('n' || (x + ?)::VARCHAR)::INTEGER AS n FROM small", params=[99_000])
        failing.wait()
    first, second, third = _lines(path)
    assert tuple(first) == LINE_FIELDS
    assert (first["version"], first["who"], first["sql"]) == (LINE_VERSION, "ann", QUICK)
    assert (first["outcome"], first["error"], first["fraction"]) == ("exact", 0.0, 1.0)
    assert 0 < first["first_answer_seconds"] <= first["seconds"]  # type: ignore[operator]
    assert first["core_seconds"] > 0  # type: ignore[operator]
    assert second["outcome"] == "stopped"
    assert 0 < second["error"] <= 0.5  # type: ignore[operator]
    assert (third["outcome"], third["first_answer_seconds"]) == ("failed", None)
    assert "99" not in json.dumps([third["sql"], third["failure"]])
    if sys.platform != "win32":
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_values_of_parameters_are_logged_where_that_is_asked_for(db: relaqs.Session, tmp_path: Path) -> None:
    with QueryLog(tmp_path / "all", with_values=True) as log, QueryLog(tmp_path / "none") as without:
        db.witnesses.extend([log, without])
        db.online_sql("SELECT count(*) AS n FROM numbers WHERE x > $least", params={"least": 4711}).wait()
    assert "4711" in str(_lines(tmp_path / "all")[0]["sql"])
    assert _lines(tmp_path / "none")[0]["sql"] == "SELECT count(*) AS n FROM numbers WHERE x > $least"


def test_a_witness_that_fails_disturbs_no_query(db: relaqs.Session) -> None:
    class Broken(Witness):
        def ended(self, record: QueryRecord) -> None:
            raise RuntimeError

        began = answered = folded = ended  # type: ignore[assignment]

    db.witnesses.append(Broken())
    assert db.online_sql(QUICK).result().is_exact


def test_spans_show_planning_and_mini_batches(db: relaqs.Session) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    db.witnesses.append(Spans(provider))
    with provider.get_tracer("test").start_as_current_span("page") as page:
        query = db.online_sql(QUICK + " HAVING count(*) > ?", params=[1])
        query.wait()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    whole, plan, batch = spans["relaqs.query"], spans["relaqs.plan"], spans["relaqs.mini-batch"]
    assert whole.parent is not None
    assert whole.parent.span_id == page.get_span_context().span_id
    for part in (plan, batch):
        assert part.parent is not None
        assert part.parent.span_id == whole.context.span_id
        assert whole.start_time <= part.start_time <= part.end_time <= whole.end_time  # type: ignore[operator]
    assert whole.attributes is not None
    assert whole.attributes["db.query.text"] == QUICK + " HAVING count(*) > ?"
    assert whole.attributes["relaqs.outcome"] == "exact"


def test_who_does_not_trace_imports_no_tracing(warehouse: Path) -> None:
    code = (
        "import sys, relaqs\n"
        f"relaqs.connect({str(warehouse)!r}, threads=1).online_sql({QUICK!r}).result()\n"
        "print(sorted({'opentelemetry', 'prometheus_client'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of files")
def test_a_line_that_the_disk_has_no_room_for_is_left_out_whole(
    db: relaqs.Session, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import resource

    path = tmp_path / "log.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with QueryLog(path) as log:
        db.witnesses.append(log)
        db.online_sql(QUICK).wait()
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
        try:
            for _ in range(3):
                db.online_sql(QUICK).wait()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        db.online_sql(LONG.format(n=1001) + " WHERE false").wait()
    lines = [json.loads(line)["sql"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines == [QUICK, LONG.format(n=1001) + " WHERE false"]
    said = [each.getMessage() for each in caplog.records]
    assert len(said) == 1
    assert "the query log cannot be written, and lines are lost" in said[0]
