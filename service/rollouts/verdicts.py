"""Verdicts in words, and computed again from their own evidence."""

import json
from pathlib import Path

from models.guards.verdict import recomputed
from service.rollouts.assessment import Assessment
from service.rollouts.errors import RefusedError


def text(found: Assessment) -> str:
    """An assessment, a line for each guard."""
    lines = [f"{found.rollout_id}: {found.outcome.value}{', overdue' if found.is_overdue else ''}"]
    for name, verdict in found.verdicts.items():
        lines.append(f"  {name}: {verdict.outcome.value}")
        lines += [f"    {one.guard}: {one.outcome.value}: {one.detail}" for one in verdict.findings]
    return "\n".join(lines)


def recompute(path: Path) -> str:
    """Compute verdicts again from the counts and guards in a file.

    Args:
        path: a breached event's `verdict`, or an answer of `GET /v1/rollouts/{id}/verdict`.

    Raises:
        RefusedError: the file cannot be read, or says something else than its counts do.
        GuardError: its evidence is none.
    """
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError) as fault:
        raise RefusedError("evidence", f"{path} holds no JSON: {fault}; give a verdict") from fault
    verdicts = told.get("challengers", {"": told}) if isinstance(told, dict) else {"": told}
    for name, evidence in verdicts.items():
        again = recomputed(evidence).to_json()
        if again != evidence:
            raise RefusedError(
                "evidence",
                f"{path}: computed again, {name or 'it'} comes to {again['verdict']}, otherwise than told",
            )
    return f"the same, computed again: {', '.join(sorted({one['verdict'] for one in verdicts.values()}))}"
