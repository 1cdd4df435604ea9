"""Modules with public names that were moved: the old name of each → the new one."""

from __future__ import annotations

_ALGORITHMS = (
    "boosted_trees",
    "k_means",
    "linear_regression",
    "linear_svm",
    "logistic_regression",
    "perceptron",
    "polynomial_svm",
    "topic_model",
)

MOVED = {
    "relaqs.foreign_query": "relaqs.pacing.query_pacer",
    "relaqs.online_query": "relaqs.queries.online_query",
    "relaqs.options": "relaqs.queries.options",
    "relaqs.publisher": "relaqs.queries.publisher",
    "relaqs.snapshot": "relaqs.queries.snapshot",
    "relaqs.policies.base": "relaqs.sharing.policy",
    "relaqs.policies.history": "relaqs.sharing.history",
    "relaqs.policies.outlook": "relaqs.sharing.outlook",
    "relaqs.policies.plan": "relaqs.sharing.plan",
    "relaqs.policies.view": "relaqs.sharing.view",
    "relaqs.scheduling.status": "relaqs.jobs.status",
    "relaqs.simulation.outcome": "relaqs.records.outcome",
    "relaqs.simulation.trace": "relaqs.records.trace",
    "relaqs.training.scikit_hook": "relaqs.pacing.scikit",
    "relaqs.training.torch_hook": "relaqs.pacing.torch",
    "relaqs.training.xgboost_callback": "relaqs.pacing.xgboost",
    **{f"relaqs.training.{name}": f"relaqs.training.algorithms.{name}" for name in _ALGORITHMS},
}
