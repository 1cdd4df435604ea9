"""The small network that scores candidates, one by one, and the file that its weights are in."""

from __future__ import annotations

import importlib.resources
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import BinaryIO
from zipfile import BadZipFile

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.placed_policies.features import JOB_FEATURES, NODE_FEATURES

SHIPPED = "mlf_rl.npz"
HIDDEN = 32  # units of the one hidden layer


@dataclass(frozen=True, slots=True, eq=False)
class ScoringNetwork:
    """Scores of candidates from their features x: direct·x + out·tanh(inward·x + shift).

    Each candidate is scored by itself, with the same weights. So there may be any number of them.

    Attributes:
        direct: shape (F,).
        inward: shape (F, H).
        shift, out: shape (H,).

    Raises:
        ValueError: a shape is wrong, or a weight is not finite.

    >>> network = ScoringNetwork(np.array([2.0]), np.zeros((1, 1)), np.zeros(1), np.zeros(1))
    >>> network.scores(np.array([[1.0], [3.0]])).tolist()
    [2.0, 6.0]
    """

    direct: FloatArray
    inward: FloatArray
    shift: FloatArray
    out: FloatArray

    def __post_init__(self) -> None:
        features, hidden = len(self.direct), len(self.shift)
        wanted = {"direct": (features,), "inward": (features, hidden), "shift": (hidden,), "out": (hidden,)}
        for name, shape in wanted.items():
            weights = getattr(self, name)
            if weights.shape != shape or not np.isfinite(weights).all():
                raise ValueError(
                    f"{name} has shape {weights.shape}, or a weight of it is not finite; it must be {shape}"
                )

    def scores(self, features: FloatArray) -> FloatArray:
        """Return the score of each candidate, shape (n,). features: shape (n, F)."""
        hidden = np.tanh(features @ self.inward + self.shift)
        return np.asarray(features @ self.direct + hidden @ self.out)


@dataclass(frozen=True, slots=True, eq=False)
class ScoringNetworks:
    """One network for jobs, and one for a part's nodes (`relaqs.placed_policies.features`)."""

    jobs: ScoringNetwork
    nodes: ScoringNetwork

    def save(self, file: BinaryIO) -> None:
        """Write all weights into a file, in half precision."""
        arrays = {
            f"{network}_{each.name}": getattr(getattr(self, network), each.name).astype(np.float16)
            for network in ("jobs", "nodes")
            for each in fields(ScoringNetwork)
        }
        np.savez_compressed(file, allow_pickle=False, **arrays)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, FloatArray]) -> ScoringNetworks:
        """Return the networks that were saved.

        Raises:
            ValueError: an array is missing, or its shape is not that of this version's features.
        """
        made = {}
        for name, features in (("jobs", JOB_FEATURES), ("nodes", NODE_FEATURES)):
            keys = {each.name: f"{name}_{each.name}" for each in fields(ScoringNetwork)}
            missing = [key for key in keys.values() if key not in arrays]
            if missing:
                raise ValueError(f"{', '.join(missing)} is missing")
            made[name] = ScoringNetwork(
                **{field: np.asarray(arrays[key], dtype=np.float64) for field, key in keys.items()}
            )
            if len(made[name].direct) != len(features):
                raise ValueError(
                    f"the network of {name} has {len(made[name].direct)} features, and this version has "
                    f"{len(features)}"
                )
        return cls(**made)


def read_networks(path: str | None = None) -> ScoringNetworks:
    """Return the networks in a file, or those that come with the package.

    Raises:
        ValueError: the file cannot be read, or holds no such networks.
    """
    shipped = importlib.resources.files("relaqs.placed_policies") / SHIPPED
    try:
        with (
            shipped.open("rb") if path is None else open(path, "rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            return ScoringNetworks.of_arrays(dict(arrays))
    except (OSError, ValueError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path or SHIPPED} holds no weights of mlf_rl ({error}); make them with "
            "`relaqs learn --out FILE`, and name that file"
        ) from error
