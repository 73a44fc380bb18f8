"""`POST /v1/labels`: an analyst's verdicts, and what other systems report, onto the topic of the labels."""

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from service.rollouts import examples
from service.security.roles import Operator
from streaming_job.labels.ledger import Ledger

MOST = 500
LABEL_EXAMPLE: dict[str, Any] = {
    "transaction_id": "t-1", "card_id": "c-42", "kind": "verdict", "verdict": "genuine", "reason": "travel",
}  # fmt: skip

Id = Annotated[str, Field(min_length=1, max_length=64)]


class LabelBody(BaseModel):
    """What became of one transaction; docs/labels.md says what the kinds and reasons mean."""

    model_config = ConfigDict(extra="forbid")

    transaction_id: Id
    card_id: Id
    kind: Literal["early_warning", "chargeback", "refund", "verdict", "reversal"]
    verdict: Annotated[
        Literal["fraud", "genuine"] | None, Field(description="Of kind verdict, which needs it")
    ] = None
    reason: Annotated[
        str | None, Field(description="Of a verdict genuine, which needs it: why the alert was a false one")
    ] = None
    occurred_at: Annotated[
        int | None, Field(ge=0, description="When it was said, ms since 1970-01-01 UTC; default: now")
    ] = None
    maturity: Annotated[
        Literal["preliminary", "final"], Field(description="Whether it may still be taken back")
    ] = "final"


class LabelsBody(BaseModel):
    """`POST /v1/labels`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"labels": [LABEL_EXAMPLE]}]})

    labels: Annotated[list[LabelBody], Field(min_length=1, max_length=MOST)]


class WrittenBody(BaseModel):
    """What stands on the log after it."""

    written: Annotated[int, Field(description="Labels")]


def label_routes(ledger: Ledger, clock: Callable[[], float] = time.time) -> APIRouter:
    """The router.

    Args:
        ledger: takes the labels.
        clock: seconds since 1970-01-01 UTC.
    """
    router = APIRouter(tags=["labels"])

    @router.post(
        "/v1/labels",
        status_code=201,
        response_model=WrittenBody,
        responses=examples.of({"written": 1}, 201),
    )
    def add(caller: Operator, body: LabelsBody) -> dict[str, Any]:
        """Say what became of transactions: all of it is written, or nothing.

        The caller's name is the `source`. The last label of a transaction counts: a request may be repeated.
        """
        now_ms = int(clock() * 1000)
        said = {"source": caller.name, "occurred_at": now_ms}
        rows = [said | one.model_dump(exclude_none=True) for one in body.labels]
        return {"written": ledger.add(rows)}

    return router
