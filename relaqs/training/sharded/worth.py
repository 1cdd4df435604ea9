"""Whether it pays to keep parameters in shards, by what is known after two passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

CLIENT_BYTES_PER_SECOND = 1.1e8  # of a client's link of 1 Gbit/s, which all workers share
LEAST_SHARE = 0.2  # of a pass, that the client's link would be busy for it


@dataclass(frozen=True, slots=True)
class ShardWorth:
    """Whether shards pay, and why or why not, for people."""

    pays: bool
    why: str


def worth_of(byte_count: int, workers: Sequence[str], pass_core_seconds: float) -> ShardWorth:
    """Return whether shards pay.

    In client mode each worker is sent the parameters in each pass, and sends sums as large back. All of that
    goes over the client's link.

    Args:
        byte_count: of the parameters.
        workers: the addresses of those that would own shards.
        pass_core_seconds: what a pass takes.

    >>> worth_of(8_000_000, ("tcp://10.0.0.1:1", "tcp://10.0.0.1:2"), 1.0).why
    'all workers are on one host, where sending is computing'
    >>> print(worth_of(80_000_000, ("tcp://10.0.0.1:1", "tcp://10.0.0.2:1"), 4.0).why)
    the client's link would be busy for 2.9 s in each pass of 2.0 s
    >>> worth_of(8_000, ("tcp://10.0.0.1:1", "tcp://10.0.0.2:1"), 1.0).pays
    False
    """
    if len(workers) < 2:
        return ShardWorth(False, "there are fewer than two workers")
    if len({urlsplit(worker).hostname for worker in workers}) < 2:
        return ShardWorth(False, "all workers are on one host, where sending is computing")
    link_seconds = 2 * byte_count * len(workers) / CLIENT_BYTES_PER_SECOND
    pass_seconds = pass_core_seconds / len(workers)
    busy = f"be busy for {link_seconds:.2g} s in each pass of {pass_seconds:.1f} s"
    if link_seconds < LEAST_SHARE * pass_seconds:
        return ShardWorth(False, f"the client's link would only {busy}")
    return ShardWorth(True, f"the client's link would {busy}")
