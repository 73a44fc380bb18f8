"""`GET /v1/audit`: the audit log of changes, and the refused requests."""

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from service import openapi
from service.security import audit
from service.security.audit_log import AuditLog, StoredRecord
from service.security.roles import Admin
from service.threads import Threads

router = APIRouter()
_reading = Threads(4)
LARGEST_OFFSET = 2**63 - 1
EXAMPLE: dict[str, Any] = {
    "records": [
        {
            "offset": 41,
            "record": {
                "schema_version": 1, "at": 1_763_873_600_000, "actor": "alice", "role": "operator",
                "action": "rollout.canary_set", "target": "card-fraud-7", "from": "10.0.0.7",
                "outcome": "done", "detail": {"seq": 3, "reason": "shadow looks good", "share_bp": 1000},
                "previous": "ab" * 32, "digest": "cd" * 32,
            },
        }
    ],
    "next": None,
}  # fmt: skip


def audit_log(
    request: Request,
    refused: Annotated[
        bool, Query(description="Whether to return refused requests instead of changes")
    ] = False,
) -> AuditLog:
    """Return the application's log of changes, or of refusals."""
    log: AuditLog = request.app.state.refusals if refused else request.app.state.audit_log
    return log


@router.get("/v1/audit", responses=openapi.example(EXAMPLE))
async def newest(
    _: Admin,
    log: Annotated[AuditLog, Depends(audit_log)],
    limit: Annotated[int, Query(ge=1, le=500, description="Number of records")] = 50,
    before: Annotated[
        int | None, Query(ge=0, le=LARGEST_OFFSET, description="Only records before this offset")
    ] = None,
) -> dict[str, Any]:
    """Return the newest audit records, newest first; `next` is the `before` of the next page."""
    records = await _reading.run(lambda: log.newest(limit, before))
    return {
        "records": [_view(stored) for stored in records],
        "next": records[-1].offset if len(records) == limit else None,
    }


def _view(stored: StoredRecord) -> dict[str, Any]:
    record = audit.read(stored.value)
    if record is None:  # written neither by the sidecar nor by `fraud rollouts`
        return {"offset": stored.offset, "foreign_sha256": hashlib.sha256(stored.value).hexdigest()}
    return {"offset": stored.offset, "record": record}
