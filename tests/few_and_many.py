"""Tests that try the same few times in a quick run, and many times in the slow one."""

from __future__ import annotations

import pytest


def few_and_many(name: str, few: int, many: int) -> pytest.MarkDecorator:
    """Give a test its number of tries as an argument. Its bands must follow from that number."""
    return pytest.mark.parametrize(name, [few, pytest.param(many, marks=pytest.mark.slow)])
