"""`POST /v1/labels`: writes analysts' verdicts, and reports of other systems, to the labels topic."""

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from service import openapi
from service.security.roles import Operator
from service.threads import Threads
from streaming_job.labels.ledger import Ledger

MOST = 500
LABEL_EXAMPLE: dict[str, Any] = {
    "transaction_id": "t-1", "card_id": "c-42", "kind": "verdict", "verdict": "genuine", "reason": "travel",
}  # fmt: skip

Id = Annotated[str, Field(min_length=1, max_length=64)]


class LabelBody(BaseModel):
    """Outcome of one transaction; docs/labels.md explains kinds and reasons."""

    model_config = ConfigDict(extra="forbid")

    transaction_id: Id
    card_id: Id
    kind: Literal["early_warning", "chargeback", "refund", "verdict", "reversal"]
    verdict: Annotated[Literal["fraud", "genuine"] | None, Field(description="Required for kind verdict")] = (
        None
    )
    reason: Annotated[
        str | None, Field(description="Required for verdict genuine: why the alert was false")
    ] = None
    occurred_at: Annotated[
        int | None, Field(ge=0, description="Time of the report, ms since 1970-01-01 UTC; default: now")
    ] = None
    event_time: Annotated[
        int | None,
        Field(ge=0, description="Event time of the transaction, ms since 1970-01-01 UTC, if it is known"),
    ] = None
    maturity: Annotated[
        Literal["preliminary", "final"], Field(description="Whether the label may still be taken back")
    ] = "final"


class LabelsBody(BaseModel):
    """Body of `POST /v1/labels`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"labels": [LABEL_EXAMPLE]}]})

    labels: Annotated[list[LabelBody], Field(min_length=1, max_length=MOST)]


class WrittenBody(BaseModel):
    """Answer to `POST /v1/labels`."""

    written: Annotated[int, Field(description="Number of labels written")]


def label_routes(ledger: Ledger, clock: Callable[[], float] = time.time) -> APIRouter:
    """Create the router."""
    router, writing = APIRouter(tags=["labels"]), Threads(8)

    @router.post(
        "/v1/labels",
        status_code=201,
        response_model=WrittenBody,
        responses=openapi.example({"written": 1}, 201),
    )
    async def add(caller: Operator, body: LabelsBody) -> dict[str, Any]:
        """Report the outcomes of transactions: all labels are written, or none.

        The caller's name is the labels' `source`. Only a transaction's last label counts, so repeating a
        request changes nothing, unless another label of the transaction has come in between.
        """
        now_ms = int(clock() * 1000)
        defaults = {"source": caller.name, "occurred_at": now_ms}
        rows = [defaults | label.model_dump(exclude_none=True) for label in body.labels]
        return {"written": await writing.run(lambda: ledger.add(rows))}

    return router
