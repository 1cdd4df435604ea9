"""What a job will be worth: curves of quality over work, and the core-seconds of the steps ahead.

All jobs are fitted at once, as arrays; no optimiser runs per job. Pure: numpy only, no clock, no randomness,
and nothing here knows jobs, cores or policies.

Sources throughout: "the thesis", ch. 4, and its paper, Stafman, Or, Freedman 2019, ReLAQS: Reducing Latency
for Multi-Tenant Approximate Queries via Scheduling (Middleware); "SLAQ", Zhang, Stafman, Or, Freedman 2017,
SLAQ: Quality-Driven Scheduling for Distributed Machine Learning (SoCC).
"""

from relaqs.prediction.ahead import StepCosts, constant_cost, cost_per_size, line_cost
from relaqs.prediction.curves import DECAY, WINDOW, Curves, Family, Series, fit_best_curves, fit_curves
from relaqs.prediction.families import (
    GEOMETRIC,
    HARMONIC,
    INVERSE_SQUARE,
    LAST_VALUE,
    LINE_TO_END,
    RESULT_DELTA,
    STANDARD_ERROR,
    SUBLINEAR,
    spacing,
)

FAMILIES: tuple[Family, ...] = (
    INVERSE_SQUARE,
    RESULT_DELTA,
    STANDARD_ERROR,
    LAST_VALUE,
    SUBLINEAR,
    GEOMETRIC,
    HARMONIC,
)

__all__ = [
    "DECAY",
    "FAMILIES",
    "GEOMETRIC",
    "HARMONIC",
    "INVERSE_SQUARE",
    "LAST_VALUE",
    "LINE_TO_END",
    "RESULT_DELTA",
    "STANDARD_ERROR",
    "SUBLINEAR",
    "WINDOW",
    "Curves",
    "Family",
    "Series",
    "StepCosts",
    "constant_cost",
    "cost_per_size",
    "fit_best_curves",
    "fit_curves",
    "line_cost",
    "spacing",
]
