"""`fraud rollouts`: steer rollouts from a shell, through the same desk as the API."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from feature_store.option_groups import refuse_ignored
from models.options import TrackingUri
from service.rollouts.options import (
    At,
    Challenger,
    Connection,
    Json,
    KeyOption,
    Models,
    PolicyFiles,
    Reason,
    RolloutId,
    SimplePolicy,
    actor,
    drafts_of,
    key_of,
    print_receipt,
    say,
    takes_connection,
    takes_simple_policy,
)

app = typer.Typer(help="Propose, watch and steer rollouts of models.", no_args_is_help=True)


@app.command("show")
@takes_connection
def show_command(
    connection: Connection,
    rollout_id: Annotated[str, typer.Argument(help="A rollout; default: list all, and the champion")] = "",
    verdict: Annotated[
        bool,
        typer.Option(
            "--verdict",
            help="Show the guards' verdict instead, from the job's newest progress and, if needed, labels",
        ),
    ] = False,
    evidence: Annotated[
        Path | None, typer.Option(help="JSON file of a verdict: recompute it from its counts, and compare")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the rollouts, newest first; or show one's events, whether and from which offsets they are applied.

    Example: fraud rollouts show march --verdict
    """
    if evidence is not None:
        from service.rollouts import verdicts

        typer.echo(verdicts.recompute(evidence))
    elif verdict:
        if not rollout_id:
            raise typer.BadParameter("a verdict is of one rollout; give its id")
        _show_verdict(rollout_id, connection, as_json)
    elif rollout_id:
        _show_one(rollout_id, connection, as_json)
    else:
        _show_all(connection, as_json)


def _show_all(connection: Connection, as_json: bool) -> None:
    from service.rollouts import views

    desk = connection.desk()
    history, job = desk.look()
    overview = views.overview(history, job.groups, desk.settings.topics.model_rollouts)
    if as_json:
        typer.echo(json.dumps(overview))
        return
    for rollout in overview["rollouts"]:
        models = ", ".join(f"{c['model']['name']}/{c['model']['version']}" for c in rollout["challengers"])
        share = f"  {rollout['share_bp'] / 100:g} %" if rollout["phase"] == "canary" else ""
        say(
            f"{rollout['rollout_id']}  {rollout['phase']}{share}  seq {rollout['seq']}  {rollout['state']}  "
            f"{models}"
        )
    champion = overview["champion"]
    say(f"decides: {champion['rollout_id']}" if champion else "no model decides; see fraud rollouts propose")
    demands = overview["demands"]
    typer.echo(
        f"more than {demands['operator_max_share_bp'] / 100:g} % of the cards counts as a promotion"
        f"{', which needs two people' if demands['four_eyes'] else ''}"
    )


def _show_one(rollout_id: str, connection: Connection, as_json: bool) -> None:
    from service.rollouts import drawing, views

    desk = connection.desk()
    history, job = desk.look()
    trial = drawing.find_trial(history.line, rollout_id)
    rollout = views.rollout(history, trial, job.groups, desk.settings.topics.model_rollouts)
    if as_json:
        typer.echo(json.dumps(rollout))
        return
    say(f"{rollout_id}: {rollout['phase']}, seq {rollout['seq']}, opened by {rollout['opened_by']}")
    demands = {name: value for name, value in rollout["demands"].items() if value is not None}
    if demands:
        typer.echo(f"its promotion puts into force: {json.dumps(demands)}")
    for event in rollout["events"]:
        detail = " ".join(str(event[name]) for name in ("challenger", "share_bp", "guard") if name in event)
        state = (
            event["refused"]
            or f"{event['state']} ({event['groups']['applied']}/{event['groups']['of']} groups)"
        )
        say(f"  {event['seq']}  {event['type']} {detail}  by {event['actor']}: {event['reason']}  {state}")
        if event["held_from"]:
            offsets = event["held_from"].items()
            first = ", ".join(f"partition {partition} offset {offset}" for partition, offset in offsets)
            typer.echo(f"     in force from {first}")
    typer.echo(f"next: {', '.join(rollout['allowed']) or 'nothing'}")


@app.command("propose")
@takes_connection
@takes_simple_policy
def propose_command(
    context: typer.Context, models: Models, connection: Connection, tracking_uri: TrackingUri,
    simple_policy: SimplePolicy, policy: PolicyFiles = None,
    role: Annotated[Literal["canary", "shadow"], typer.Option(help="Role of the first model")] = "canary",
    share: Annotated[float, typer.Option(min=0.01, max=100, help="Canary's share of cards, percent")] = 10.0,
    promote: Annotated[
        bool, typer.Option("--promote", help="Promote the model at once, without a trial")
    ] = False,
    rollout_id: Annotated[str, typer.Option(help="Unique name; default: model, version, time")] = "",
    line: Annotated[str, typer.Option(help="Model line; default: the model's name")] = "",
    reason: Reason = "proposed from the command line", key: KeyOption = "", as_json: Json = False,
) -> None:  # fmt: skip
    """Check models and propose them as challengers of the champion; they decide nothing yet.

    Example: fraud rollouts propose card-fraud/2 --threshold 0.6 --rollout-id march --share 5
    """
    from service.rollouts.requests import Proposal

    if promote:
        refuse_ignored(context, ("role", "share"), "for a trial; leave it out with --promote")
        role, share = "canary", 100.0
    drafts, guards = drafts_of(models, policy or (), simple_policy, role, round(share * 100))
    proposal = Proposal(drafts, reason, key_of(key), guards, rollout_id, line, at_once=promote)
    print_receipt(connection.desk(tracking_uri).propose(proposal, actor()), as_json)


StepName = Literal["shadow", "canary", "pause", "resume", "promote", "rollback", "withdraw"]
EVENT_TYPES: dict[StepName, str] = {
    "shadow": "shadow_started",
    "canary": "canary_set",
    "pause": "paused",
    "resume": "resumed",
    "promote": "promoted",
    "rollback": "rolled_back",
    "withdraw": "withdrawn",
}
"""The type of the event that each step writes."""
TAKEN_BY: dict[str, tuple[StepName, ...]] = {
    "share": ("canary",),
    "challenger": ("canary", "promote"),
    "from_the_beginning": ("withdraw",),
    "at_seq": tuple(step for step in EVENT_TYPES if step != "rollback"),
}
"""The steps that an option is for, if it is not for all."""


@app.command("step")
@takes_connection
def step_command(
    context: typer.Context, rollout_id: RolloutId,
    step: Annotated[StepName, typer.Argument(help="The step, as below")], connection: Connection,
    share: Annotated[
        float | None, typer.Option(min=0.01, max=100, help="Percent of the cards; default: as proposed")
    ] = None,
    challenger: Challenger = "",
    from_the_beginning: Annotated[
        bool,
        typer.Option(
            "--from-the-beginning",
            help="Let the previous champion also decide the transactions that arrived while the rollout was "
            "in force and are not decided yet",
        ),
    ] = False,
    reason: Annotated[str, typer.Option(help="Reason, stored in the event; withdraw needs one")] = "",
    at_seq: At = None, key: KeyOption = "", as_json: Json = False,
) -> None:  # fmt: skip
    """Take the next step of a rollout.

    shadow: the challengers score everything beside the champion, and none decides. canary: a challenger
    decides for its share of the cards; a larger share only adds cards. pause: every card goes back to the
    champion, and challengers still score everything. resume: the phase and the share from before the pause.
    promote: a challenger decides for every card from now on. rollback: an open rollout ends in any phase, and
    the champion decides for every card. withdraw: a promotion ends, and the previous champion decides again.

    Example: fraud rollouts step march canary --share 5
    """
    from models.rollouts.events import Type
    from service.rollouts.requests import Step

    for option, steps in TAKEN_BY.items():
        if step not in steps:
            refuse_ignored(context, (option,), f"not for {step}, but for {', '.join(steps)}")
    if step == "withdraw" and not reason:
        raise typer.BadParameter("a withdrawal needs a --reason")
    taken = Step(
        rollout_id, Type(EVENT_TYPES[step]), reason or step, key_of(key), at_seq, challenger,
        round((share or 0) * 100), from_the_beginning,
    )  # fmt: skip
    print_receipt(connection.desk().take(taken, actor()), as_json)


def _show_verdict(rollout_id: str, connection: Connection, as_json: bool) -> None:
    from service.rollouts import verdicts

    assessment = connection.desk().assess(rollout_id)
    if as_json:
        typer.echo(json.dumps(assessment.to_json()))
        return
    for line in verdicts.lines(assessment):
        say(line)
