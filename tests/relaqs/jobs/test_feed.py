"""A feed and its readers: the newest report, none twice, always the last, and the error at the end."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
from relaqs_engine.errors import SqlError

from relaqs.jobs.handle import Feed, Reader


def reader_of(feed: Feed[int]) -> Reader[int]:
    return Reader(feed, on_interrupt=lambda: None)


def test_a_slow_reader_skips_and_gets_the_last() -> None:
    feed: Feed[int] = Feed()
    reader = reader_of(feed)
    for number in range(4):
        feed.publish(number)
    assert next(reader) == 3
    assert feed.publish(4, "exact")
    assert list(reader) == [4]
    assert not feed.publish(5)
    assert (feed.latest, feed.end) == (4, "exact")


def test_the_error_comes_after_the_last_report() -> None:
    feed: Feed[int] = Feed()
    feed.publish(1)
    feed.close("failed", ZeroDivisionError("broken"))
    reader = reader_of(feed)
    assert next(reader) == 1
    with pytest.raises(ZeroDivisionError, match="broken"):
        next(reader)


def test_nothing_stays_of_what_was_read_once_its_error_is_forgotten() -> None:
    """And nobody has to wait for a collection of garbage: an answer may take all the memory there is."""

    class Report:
        """Too large to be kept."""

    gc.disable()
    try:
        feed: Feed[Report] = Feed()
        report = Report()
        known = weakref.ref(report)
        feed.publish(report)
        cause = OSError("a cause")
        error = SqlError("broken", (1, 7))
        error.__cause__ = cause
        feed.close("failed", error)
        reader = Reader(feed, on_interrupt=lambda: None)
        assert reader.next_within(0.0) is report
        for _ in range(2):
            with pytest.raises(SqlError, match="broken; at line 1, column 7") as raised:
                reader.next_within(0.0)
            assert raised.value.__cause__ is cause
            del raised
        del feed, reader, report, error
        assert known() is None
    finally:
        gc.enable()


def test_a_reader_that_waits_hears_of_the_end() -> None:
    feed: Feed[int] = Feed()
    read: list[int] = []
    thread = threading.Thread(target=lambda: read.extend(reader_of(feed)))
    thread.start()
    feed.publish(7)
    feed.close("stopped")
    thread.join(20)
    assert read == [7]


def test_nothing_new_within_the_time() -> None:
    assert reader_of(Feed[int]()).next_within(0.0) is None
