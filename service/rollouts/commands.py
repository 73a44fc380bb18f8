"""`fraud rollouts`: steer rollouts from a shell, through the same desk as the API."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from feature_store.option_groups import takes
from models.options import TrackingUri
from service.rollouts.options import (
    Challenger,
    Connection,
    Json,
    KeyOption,
    Models,
    PolicyFile,
    PolicyFiles,
    Reason,
    RolloutId,
    SimplePolicy,
    StepOptions,
    actor,
    draft_of,
    drafts_of,
    key_of,
    print_receipt,
    say,
    takes_connection,
    takes_simple_policy,
    takes_step,
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
    say(f"decides: {champion['rollout_id']}" if champion else "no model decides; see fraud rollouts promote")
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
    models: Models, connection: Connection, tracking_uri: TrackingUri, simple_policy: SimplePolicy,
    policy: PolicyFiles = None,
    role: Annotated[Literal["canary", "shadow"], typer.Option(help="Role of the first model")] = "canary",
    share: Annotated[float, typer.Option(min=0.01, max=100, help="Canary's share of cards, percent")] = 10.0,
    rollout_id: Annotated[str, typer.Option(help="Unique name; default: model, version, time")] = "",
    line: Annotated[str, typer.Option(help="Model line; default: the model's name")] = "",
    reason: Reason = "proposed from the command line", key: KeyOption = "", as_json: Json = False,
) -> None:  # fmt: skip
    """Check models and propose them as challengers of the champion; they decide nothing yet.

    Example: fraud rollouts propose card-fraud/2 --threshold 0.6 --rollout-id march --share 5
    """
    from service.rollouts.requests import Proposal

    drafts, guards = drafts_of(models, policy or (), simple_policy, role, round(share * 100))
    proposal = Proposal(drafts, reason, key_of(key), guards, rollout_id, line)
    print_receipt(connection.desk(tracking_uri).propose(proposal, actor()), as_json)


@app.command("shadow")
@takes_step
def shadow_command(rollout_id: RolloutId, step: StepOptions, reason: Reason = "shadow") -> None:
    """Let the challengers score everything beside the champion; none decides.

    Example: fraud rollouts shadow march
    """
    step.take("shadow_started", rollout_id, reason)


@app.command("canary")
@takes_step
def canary_command(
    rollout_id: RolloutId,
    step: StepOptions,
    share: Annotated[
        float | None, typer.Option(min=0.01, max=100, help="Percent of the cards; default: as proposed")
    ] = None,
    challenger: Challenger = "",
    reason: Reason = "canary",
) -> None:
    """Let a challenger decide for its share of the cards; a larger share only adds cards.

    Example: fraud rollouts canary march --share 5
    """
    step.take("canary_set", rollout_id, reason, challenger=challenger, share_bp=round((share or 0) * 100))


@app.command("pause")
@takes_step
def pause_command(rollout_id: RolloutId, step: StepOptions, reason: Reason = "paused") -> None:
    """Give every card back to the champion; challengers still score every transaction.

    Example: fraud rollouts pause march --reason "too many alerts"
    """
    step.take("paused", rollout_id, reason)


@app.command("resume")
@takes_step
def resume_command(rollout_id: RolloutId, step: StepOptions, reason: Reason = "resumed") -> None:
    """Go on with the phase and the share from before a pause.

    Example: fraud rollouts resume march
    """
    step.take("resumed", rollout_id, reason)


@app.command("rollback")
@takes("step", StepOptions, but=("at_seq",))
def rollback_command(rollout_id: RolloutId, step: StepOptions, reason: Reason = "rolled back") -> None:
    """End an open rollout in any phase: the champion decides for every card.

    Example: fraud rollouts rollback march
    """
    step.take("rolled_back", rollout_id, reason)


@app.command("promote")
@takes_step
@takes_simple_policy
def promote_command(
    what: Annotated[
        str, typer.Argument(help="A rollout; or NAME/VERSION, to propose and promote it without a trial")
    ],
    step: StepOptions,
    simple_policy: SimplePolicy,
    tracking_uri: TrackingUri = "",
    policy: PolicyFile = None,
    rollout_id: Annotated[str, typer.Option(help="Id for NAME/VERSION; default: model, version, time")] = "",
    challenger: Challenger = "",
    reason: Reason = "promoted",
) -> None:
    """Let a challenger decide for every card from now on.

    Example: fraud rollouts promote march
    """
    if "/" not in what:
        if rollout_id or policy is not None or simple_policy.is_given:
            raise typer.BadParameter(
                "the policy and the id of an open rollout are fixed; give them with NAME/VERSION only"
            )
        step.take("promoted", what, reason, challenger=challenger)
        return
    if challenger or step.at_seq is not None:
        raise typer.BadParameter(
            "--challenger and --at refer to an open rollout; leave them out with NAME/VERSION"
        )
    from service.rollouts.requests import Proposal

    draft, guards = draft_of(what, policy, simple_policy, "canary", 10_000)
    proposal = Proposal((draft,), reason, key_of(step.key), guards, rollout_id, at_once=True)
    print_receipt(step.desk(tracking_uri).propose(proposal, actor()), step.as_json)


@app.command("withdraw")
@takes_step
def withdraw_command(
    rollout_id: RolloutId,
    step: StepOptions,
    reason: Annotated[str, typer.Option(help="Reason, stored in the event")],
    from_the_beginning: Annotated[
        bool,
        typer.Option(
            "--from-the-beginning",
            help="Let the previous champion also decide the transactions that arrived while the rollout was "
            "in force and are not decided yet",
        ),
    ] = False,
) -> None:
    """Withdraw a promotion: the previous champion decides again.

    Example: fraud rollouts withdraw march --reason "the model raises"
    """
    step.take("withdrawn", rollout_id, reason, from_the_beginning=from_the_beginning)


def _show_verdict(rollout_id: str, connection: Connection, as_json: bool) -> None:
    from service.rollouts import verdicts

    assessment = connection.desk().assess(rollout_id)
    if as_json:
        typer.echo(json.dumps(assessment.to_json()))
        return
    for line in verdicts.lines(assessment):
        say(line)
