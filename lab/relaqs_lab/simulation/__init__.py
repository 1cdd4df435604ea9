"""A cluster that is only computed: jobs from traces, arrivals from a seed, and the same policies as live.

`simulator.py` has the loop and the theory. The same seed gives the same history: there is no clock but the
simulator's own, no thread and no Dask. Nothing here decides who gets a core. A policy does, from the view
that is filled here.
"""

from relaqs_lab.records.trace import LEVELS, Outcome, Pipeline, Trace
from relaqs_lab.simulation.simulator import Options, Run, simulate
from relaqs_lab.simulation.workload import (
    FAMILIES,
    Workload,
    poisson_arrivals,
    query_trace,
    synthetic_workload,
    training_trace,
    workload_of,
)

__all__ = [
    "FAMILIES",
    "LEVELS",
    "Options",
    "Outcome",
    "Pipeline",
    "Run",
    "Trace",
    "Workload",
    "poisson_arrivals",
    "query_trace",
    "simulate",
    "synthetic_workload",
    "training_trace",
    "workload_of",
]
