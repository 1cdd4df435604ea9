"""Modules of PyTorch that tests train, made by functions that can be imported."""

from __future__ import annotations

import torch
from torch import nn

from relaqs.executors.dask.slots import worker_here


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def few() -> nn.Module:
    """Tells three classes apart."""
    return nn.Sequential(nn.Linear(64, 3))


def random() -> nn.Module:
    """Drops half of what is between its layers, and normalises batches."""
    return nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 10))


def deep() -> nn.Module:
    """Has four layers with parameters, draws in two places, and normalises. One layer changes its input."""
    return nn.Sequential(
        nn.Linear(64, 24),
        nn.BatchNorm1d(24),
        nn.ReLU(inplace=True),
        nn.Dropout(0.3),
        nn.Linear(24, 16),
        nn.Sigmoid(),
        nn.Dropout(0.3),
        nn.Linear(16, 10),
    )


class Doubled(nn.Module):
    """Gives its features with 64 bits."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features.double()


def double() -> nn.Module:
    """Computes with 64 bits."""
    return nn.Sequential(Doubled(), nn.Linear(64, 16).double(), nn.Tanh(), nn.Linear(16, 10).double())


def tied() -> nn.Module:
    """Has one layer twice."""
    layer = nn.Linear(64, 64)
    return nn.Sequential(layer, nn.ReLU(), layer)


class Growing(nn.Module):
    """Has a buffer that grows with each call."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(64, 10)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        self.seen = torch.cat([self.seen, torch.zeros(1)])
        scores: torch.Tensor = self.line(features)
        return scores


def lines() -> nn.Module:
    return Growing()


class FailsOnWorkers(nn.Module):
    """Raises where a cluster's worker calls it."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if worker_here() is not None:
            raise ZeroDivisionError("this layer fails on workers")
        return features


def fails_on_workers() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), FailsOnWorkers(), nn.Linear(16, 10))


def no_module() -> int:
    return 3
