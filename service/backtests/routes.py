"""`/v1/backtests`: starts a backtest over the archive, follows it, and returns its report."""

from dataclasses import fields
from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field

from service import openapi
from service.backtests import page
from service.backtests.jobs import Backtest, BacktestJobs
from service.rollouts.bodies import POLICY_EXAMPLE, Model, policy_of
from service.security.problems import Problem
from service.security.roles import Operator, Viewer
from streaming_job.backtest.request import Request

ASKED: dict[str, Any] = {"threshold": 0.6, "days": 7, "budget": 500}
EXAMPLE: dict[str, Any] = {
    "id": "5f0c2b7a91d3", "by": "alice", "begun_at": 1_763_873_600_000, "asked": ASKED, "state": "done",
    "decided": 2_000_000, "error": None,
}  # fmt: skip
WITH_REPORT = {**EXAMPLE, "report": {"backtest": {"alerts_a_day": 412.0}, "live": {"alerts_a_day": 530.5}}}


class BacktestBody(BaseModel):
    """Body of `POST /v1/backtests`; what is left out is as it is live."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [ASKED]})

    model: Annotated[Model | None, Field(description="NAME/VERSION in the registry")] = None
    policy: Annotated[
        dict[str, Any] | None,
        Field(description="As in policy.yaml, without guards", examples=[POLICY_EXAMPLE]),
    ] = None
    threshold: Annotated[float | None, Field(ge=0, le=1, description="Replaces the policy's")] = None
    max_count_5m: Annotated[int | None, Field(ge=1, description="Replaces the policy's")] = None
    missing_profile: Annotated[str | None, Field(description="Replaces the policy's")] = None
    days: Annotated[int, Field(ge=1, description="Calendar days (UTC) to compare, the last ones")] = 7
    until: Annotated[date | None, Field(description="First day that is not compared any more")] = None
    history_days: Annotated[
        int | None,
        Field(ge=0, description="Days before them that make the state; default: all that are archived"),
    ] = None
    budget: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, description="Alerts a day that the team can work on")
    ] = None

    def request(self) -> Request:
        """Convert the body."""
        changes = {
            name: value
            for name in ("threshold", "max_count_5m", "missing_profile")
            if (value := getattr(self, name)) is not None
        }
        policy = None if self.policy is None else policy_of(self.policy)
        return Request(
            self.model or "", policy, changes, self.days, self.until, self.history_days, self.budget
        )


def backtest_routes(jobs: BacktestJobs) -> APIRouter:
    """Create the router."""
    router = APIRouter(tags=["backtests"])

    @router.post("/v1/backtests", status_code=202, responses=openapi.example(EXAMPLE, 202))
    def start(caller: Operator, body: BacktestBody, response: Response) -> dict[str, Any]:
        """Start a backtest, one at a time; `Location` is where its state and then its report are.

        It runs at low priority in a process of its own, in one thread. See docs/backtest.md.
        """
        asked = body.model_dump(mode="json", exclude_unset=True)
        job = jobs.start(body.request(), asked, caller.name)
        response.headers["Location"] = f"/v1/backtests/{job.id}"
        return _view(job)

    @router.get("/v1/backtests", responses=openapi.example({"backtests": [EXAMPLE]}))
    def newest_first(_: Viewer) -> dict[str, Any]:
        """Return the newest backtests since the sidecar's start, without their reports, newest first."""
        return {"backtests": [_view(job) for job in jobs.newest_first()]}

    @router.get("/v1/backtests/{backtest_id}", responses=openapi.example(WITH_REPORT))
    def one(_: Viewer, backtest_id: str) -> dict[str, Any]:
        """Return a backtest; `report` is null until its state is `done`. Cards are masked."""
        job = jobs.find(backtest_id)
        return {**_view(job), "report": job.report}

    @router.get(
        "/v1/backtests/{backtest_id}/page",
        response_class=HTMLResponse,
        responses=openapi.example("<!doctype html>...", media_type="text/html"),
    )
    def as_page(_: Viewer, backtest_id: str) -> HTMLResponse:
        """Return the report as a page that stands alone."""
        job = jobs.find(backtest_id)
        if job.report is None:
            raise Problem(
                409, "backtest_has_no_report", f"backtest {job.id} is {job.state}: {job.error or 'wait'}"
            )
        return HTMLResponse(
            page.page(job.report), headers={"Content-Security-Policy": page.CONTENT_SECURITY_POLICY}
        )

    @router.delete(
        "/v1/backtests/{backtest_id}", responses=openapi.example({**EXAMPLE, "state": "cancelled"})
    )
    def cancel(_: Operator, backtest_id: str) -> dict[str, Any]:
        """End a backtest that is running; one that has ended stays as it is."""
        return _view(jobs.cancel(backtest_id))

    return router


def _view(job: Backtest) -> dict[str, Any]:
    # not asdict: it would copy the report
    return {each.name: getattr(job, each.name) for each in fields(job) if each.name != "report"}
