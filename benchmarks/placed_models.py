"""Small models of five kinds over pictures of digits, as workers of `benchmarks.placed_live` import them.

A picture comes as 64 numbers. Each model is a `torch.nn.Sequential`, so that it can be cut.
"""

from __future__ import annotations

import torch
from torch import nn

CLASSES = 10


def perceptron() -> nn.Module:
    """Return four layers."""
    return nn.Sequential(
        nn.Linear(64, 192),
        nn.ReLU(),
        nn.Linear(192, 192),
        nn.ReLU(),
        nn.Linear(192, 96),
        nn.ReLU(),
        nn.Linear(96, CLASSES),
    )


def linear() -> nn.Module:
    """Return one layer. It cannot be cut into stages."""
    return nn.Sequential(nn.Linear(64, CLASSES))


def convolutional() -> nn.Module:
    """Return two layers of convolution and two others, as AlexNet has more of."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24 * 16, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )


class Residual(nn.Module):
    """Adds two layers to what comes in, as ResNet does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = features + self.inner(features)
        return added


def residual() -> nn.Module:
    """Return three residual blocks."""
    return nn.Sequential(nn.Linear(64, 96), Residual(96), Residual(96), Residual(96), nn.Linear(96, CLASSES))


class LastRow(nn.Module):
    """Reads a picture row by row, and gives what a long short-term memory has at the last one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.memory = nn.LSTM(8, width, batch_first=True)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        rows, _ = self.memory(features.view(-1, 8, 8))
        last: torch.Tensor = rows[:, -1]
        return last


def recurrent() -> nn.Module:
    """Return a long short-term memory and two layers."""
    return nn.Sequential(LastRow(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
