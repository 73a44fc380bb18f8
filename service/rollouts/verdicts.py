"""Verdicts as text, and their recomputation from the evidence."""

import json
from pathlib import Path

from models.guards.verdict import recomputed
from service.rollouts.assessment import Assessment
from service.rollouts.errors import RefusedError


def lines(assessment: Assessment) -> list[str]:
    """Format an assessment, with a line for each guard."""
    overdue = ", overdue" if assessment.is_overdue else ""
    shown = [f"{assessment.rollout_id}: {assessment.outcome.value}{overdue}"]
    for name, verdict in assessment.verdicts.items():
        shown.append(f"  {name}: {verdict.outcome.value}")
        shown += [f"    {item.guard}: {item.outcome.value}: {item.detail}" for item in verdict.findings]
    if assessment.waiting_for is not None:
        shown.append(f"  not judged by labels: {assessment.waiting_for}")
    return shown


def recompute(path: Path) -> str:
    """Check that each challenger's verdict follows from its counts and guards; return the outcomes as text.

    Args:
        path: JSON file: the `verdict` of an event `breached`, or an answer of
            `GET /v1/rollouts/{id}/verdict`.

    Raises:
        RefusedError: the file cannot be read, or a verdict in it does not follow from its counts.
    """
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as fault:
        raise RefusedError(
            "evidence", f"{path} cannot be read as JSON: {fault}; give the file of a verdict"
        ) from fault
    verdicts = content.get("challengers", {"": content}) if isinstance(content, dict) else None
    if not isinstance(verdicts, dict) or not verdicts:
        raise RefusedError("evidence", f"{path} holds no verdict of a challenger; give the file of a verdict")
    for name, evidence in verdicts.items():
        result = recomputed(evidence)
        if not result.agrees_with(evidence):
            raise RefusedError(
                "evidence",
                f"{path}: the verdict{name and f' on {name}'} does not follow from its counts, which give "
                f"{result.outcome.value}; do not rely on the file",
            )
    outcomes = sorted({evidence["verdict"] for evidence in verdicts.values()})
    return f"recomputed, same verdict: {', '.join(outcomes)}"
