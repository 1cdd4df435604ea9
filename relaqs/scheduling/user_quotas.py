"""What each job may have of the cores that are planned for its user."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.scheduling.ledger import Account
from relaqs.sharing.fill import fill_evenly


def cores_most_of(accounts: Sequence[Account]) -> FloatArray:
    """Return how many cores each job may be planned, shape (J,): its own most, and its part of its user's.

    The jobs of a user who may have only so many share these by their weights.

    Args:
        accounts: of the jobs that ask for cores.
    """
    most = np.array([account.description.cores_most for account in accounts], dtype=np.float64)
    for user in {each.description.user for each in accounts if each.description.user_cores_most < math.inf}:
        rows = [row for row, account in enumerate(accounts) if account.description.user == user]
        together = min(accounts[row].description.user_cores_most for row in rows)
        weights = np.array([accounts[row].weight for row in rows])
        most[rows] = fill_evenly(together, weights, most[rows])
    return most
