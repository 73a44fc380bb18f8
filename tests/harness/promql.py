"""Check of PromQL expressions against the exported metrics."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import promql_parser as ast

from deploy.prometheus import RULES
from deploy.prometheus.absence import rules
from loadtests.audit import exported as exported_by_audit
from models.rollouts.state import Phase
from service.health.codes import OF_PARTITIONS, REGISTRY, Verdict
from service.health.feature_drift import WINDOWS
from service.metrics.of_rollouts import GUARD_VERDICTS
from service.metrics.table import FAMILIES
from streaming_job.archive import metrics as exported_by_archiver
from streaming_job.contracts import Reason
from streaming_job.metric_families import Type
from streaming_job.progress.trials import PAIRED

TARGET = frozenset({"job", "instance"})
VALUES: dict[str, set[str]] = {
    "fraud_verdict": {verdict.value for verdict in Verdict},
    "fraud_partition_verdict": {verdict.value for verdict in OF_PARTITIONS},
    "fraud_rollout_phase": set(Phase),
    "fraud_guard_verdict": set(GUARD_VERDICTS),
    "alerted": set(PAIRED),
    "code": set(REGISTRY),
    "reason": {reason.value for reason in Reason},
    "limit": {"commit", "latency", "held", "heartbeat", "epoch", "silence"},
    "signal": {"change", "heartbeat"},
    "role": {"champion", "challenger"},
    "window": set(WINDOWS),
}
"""Labels whose values are known: label -> values."""


class QueryError(AssertionError):
    """An expression uses a metric, label or value that is not exported."""


@cache
def exported() -> dict[str, frozenset[str]]:
    """Sample name -> labels, among them `job` and `instance`, which Prometheus adds to a target's samples.

    The names are those of the sidecar, the audit, the archiver, Prometheus itself and its client library.
    """
    result = {"up": TARGET, "ALERTS": TARGET | {"alertname", "alertstate", "severity"}}
    for family in (*FAMILIES.values(), *exported_by_audit.FAMILIES, *exported_by_archiver.FAMILIES):
        name, labels = family.exposed(), TARGET | set(family.exposed_labels())
        if family.type == Type.HISTOGRAM:
            result[f"{name}_bucket"] = labels
        if family.type in (Type.HISTOGRAM, Type.SUMMARY):
            result[f"{name}_count"] = result[f"{name}_sum"] = labels - {"le"}
        else:
            result[name] = labels
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"):
        result[name] = TARGET
    return result


@cache
def recorded() -> dict[str, frozenset[str]]:
    """Recorded metric -> labels, by the recording rules."""
    result: dict[str, frozenset[str]] = {}
    for file in sorted(RULES.glob("*.yml")):
        for rule in rules(file):
            if "record" in rule:
                result[rule["record"]] = labels_of(ast.parse(rule["expr"]), {**exported(), **result})
    return result


def check(expression: str) -> frozenset[str]:
    """Labels of an expression's result.

    Raises:
        QueryError: a metric that nothing exports, or a label or label value that the metric does not have.
        ValueError: the expression is not PromQL.
    """
    return labels_of(ast.parse(expression), {**exported(), **recorded()})


def labels_of(node: Any, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Labels of a node's result; every metric and label below it is checked."""
    match node:
        case ast.VectorSelector():
            return _selected(node, known)
        case ast.MatrixSelector():
            return _selected(node.vector_selector, known)
        case ast.ParenExpr() | ast.UnaryExpr() | ast.SubqueryExpr():
            return labels_of(node.expr, known)
        case ast.AggregateExpr():
            return _aggregated(node, known)
        case ast.BinaryExpr():
            return _joined(node, known)
        case ast.Call():
            inner = [labels_of(argument, known) for argument in node.args]
            if node.func.name == "histogram_quantile":
                _need({"le"}, inner[1], node)
                return inner[1] - {"le"}
            return inner[0] if inner else frozenset()
        case _:
            return frozenset()


def _selected(node: Any, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    if node.name not in known:
        raise QueryError(f"nothing exports {node.name}")
    for matcher in node.matchers.matchers:
        _need({matcher.name}, known[node.name], node.name)
        if matcher.name in VALUES and "Not" not in str(matcher.op):
            unknown = set(matcher.value.split("|")) - VALUES[matcher.name]
            if unknown and not matcher.value.startswith("$"):
                raise QueryError(f"{node.name}: {matcher.name} is never {sorted(unknown)}")
    return known[node.name]


def _aggregated(node: Any, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    inner = labels_of(node.expr, known)
    if node.modifier is None:
        return inner if node.op in ("topk", "bottomk") else frozenset()
    named = frozenset(node.modifier.labels)
    _need(named, inner, node.op)
    by = node.modifier.type == ast.AggModifierType.By
    return named if by else inner - named


def _joined(node: Any, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    left, right = labels_of(node.lhs, known), labels_of(node.rhs, known)
    modifier = node.modifier
    if modifier is not None and modifier.matching is not None:
        named = set(modifier.matching.labels)
        _need(named, left, node.op)
        _need(named, right, node.op)
    group = frozenset((modifier.group_labels if modifier else None) or ())
    _need(group, left | right, node.op)
    scalar = isinstance(node.lhs, ast.NumberLiteral) or not left
    return right if scalar else left | group


def _need(labels: set[str] | frozenset[str], there: frozenset[str], where: object) -> None:
    lacking = set(labels) - there
    if lacking:
        raise QueryError(f"{where}: no label {sorted(lacking)}, only {sorted(there)}")
