"""LISTEN and NOTIFY: what is rolled back is not said, and what nobody reads has a bound."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from pygwire.messages import NotificationResponse

from benchmarks.server_process import Running
from relaqs.serve.failures import RefusedError
from relaqs.serve.named import ChannelMember, Channels


def test_what_is_rolled_back_was_neither_said_nor_listened_to(server: Running) -> None:
    with (
        psycopg.connect(server.address(), autocommit=True) as one,
        psycopg.connect(server.address(), autocommit=True) as other,
    ):
        one.execute("BEGIN")
        one.execute("LISTEN undone")
        one.execute("ROLLBACK")
        one.execute("LISTEN x")
        other.execute("NOTIFY undone, 'lost'")
        with pytest.raises(psycopg.errors.DivisionByZero):
            other.execute("NOTIFY x, 'lost'; SELECT 1/0")
        with other.pipeline() as pipeline:
            other.execute("NOTIFY x, 'lost'")
            other.execute("SELECT 1/0")
            with pytest.raises(psycopg.errors.DivisionByZero):
                pipeline.sync()
        other.execute("NOTIFY x, 'lost'; ROLLBACK")
        for sql in ("BEGIN", "NOTIFY x, 'a'", "SAVEPOINT a", "NOTIFY x, 'lost'", "ROLLBACK TO a", "COMMIT"):
            other.execute(sql)
        other.execute("NOTIFY x, 'b'; SELECT 1")
        assert [each.payload for each in one.notifies(timeout=10, stop_after=2)] == ["a", "b"]
        one.execute("BEGIN")
        one.execute("UNLISTEN x")
        other.execute("NOTIFY x, 'still'")
        one.execute("ROLLBACK")
        assert [each.payload for each in one.notifies(timeout=10, stop_after=1)] == ["still"]
        one.execute("LISTEN own; NOTIFY own, 'heard'")
        assert [each.payload for each in one.notifies(timeout=10, stop_after=1)] == ["heard"]


def test_a_listener_that_reads_nothing_makes_others_wait() -> None:
    async def speak() -> None:
        sent: list[NotificationResponse] = []
        unread = [0]

        def send(said: NotificationResponse) -> None:
            sent.append(said)
            unread[0] += len(said.payload)

        channels = Channels()
        one = ChannelMember(channels, 1, lambda: True, send, lambda: unread[0])
        other = ChannelMember(channels, 2, lambda: True, send, lambda: 0)
        one.listen("x", is_on=True)
        said = 0
        with pytest.raises(RefusedError, match="wait for a listener"):  # noqa: PT012
            while said < 20_000:
                other.say("x", f"{said:07900}")
                other.end_transaction()
                said += 1
        assert len(sent) == said - 1000
        assert unread[0] < 300_000
        while len(sent) < said:
            unread[0] = 0  # the client reads
            one.tell()
        assert [int(each.payload[-9:]) for each in sent] == [*range(said)]
        unread[0] = 300_000
        other.say("x", "1")
        other.end_transaction()
        assert len(sent) == said
        unread[0] = 0
        await asyncio.sleep(0.5)  # it looks again by itself
        assert len(sent) == said + 1

    asyncio.run(speak())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT date_trunc('century', interval '150 years')",
        "SELECT date_trunc('century', now(), 'Asia/Tokyo')",
        "SELECT 1e999999999::text",
    ],
)
def test_what_would_be_answered_wrong_is_refused(server: Running, sql: str) -> None:
    with (
        psycopg.connect(server.address(), autocommit=True) as connection,
        pytest.raises((psycopg.errors.NotSupportedError, psycopg.errors.DataError)),
    ):
        connection.execute(sql)
