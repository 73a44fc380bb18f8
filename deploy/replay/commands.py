"""`fraud replay`: a second job over the log; its results beside the live ones, and in their place."""

import json
import shlex
import signal
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.replay.record import ReplayError
from feature_store.catalogue import DAY_MS
from feature_store.option_groups import takes
from feature_store.output_files import require_place
from service.rollouts.options import PolicyFile, SimplePolicy, takes_simple_policy
from streaming_job import environment
from streaming_job.settings import MOST_LABEL_DELAY_MS, JobSettings

if TYPE_CHECKING:
    from deploy.replay.record import Replay

app = typer.Typer(
    no_args_is_help=True, help="Decide the log again beside the live job; compare, switch to it, and back."
)
Name = Annotated[str, typer.Argument(help="Name of the replay, part of its topics' names")]


@dataclass(frozen=True)
class Start:
    """How a replay begins, besides the policy that is given by options."""

    model: Annotated[str, typer.Option(help="NAME/VERSION that decides instead of the live rollouts")] = ""
    policy: PolicyFile = None
    release: Annotated[
        str, typer.Option(help="Program `fraud` of another installed release, which runs the job")
    ] = ""
    start_from: Annotated[
        str,
        typer.Option(
            "--from",
            help="Copy of a checkpoint of the live job to begin with; default: the log's beginning",
        ),
    ] = ""
    archive: Annotated[
        str, typer.Option(help="Archive in which the log begins; default: it begins with the topics")
    ] = ""
    key_groups: Annotated[int, typer.Option(min=0, help="Key groups; 0: as the live job")] = 0
    label_delay_days: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=MOST_LABEL_DELAY_MS / DAY_MS,
            help="Keep merchant facts, with this label delay in days, instead of what the live job keeps",
        ),
    ] = None
    partial: Annotated[bool, typer.Option("--partial", help="Accept that the log has lost its beginning")] = (
        False
    )


takes_start = takes("start", Start)


@app.command("plan")
@takes_simple_policy
@takes_start
def plan_command(name: Name, simple_policy: SimplePolicy, start: Start) -> None:
    """Show what `start` with the same options would do, without writing anything; exit status 1 if it cannot.

    Example: fraud replay plan better --model card-fraud/2
    """
    _planned(name, simple_policy, start)


@app.command("start")
@takes_simple_policy
@takes_start
def start_command(
    name: Name,
    simple_policy: SimplePolicy,
    start: Start,
    most_behind: Annotated[
        int, typer.Option(min=1, help="Wait while the live job is behind by more transactions than this")
    ] = 5_000,
    slowest_ms: Annotated[
        float, typer.Option(min=1, help="Wait while 1 % of the live decisions take longer than this")
    ] = 250,
    urgent: Annotated[
        bool, typer.Option("--urgent", help="Do not yield to the live job, in priority and by waiting")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what arrives, until stopped")] = False,
) -> None:
    """Decide the log in a second job, with topics of its own; or continue a replay after a stop or kill.

    Settings come from FRAUD_... variables, as for the live job. The options of a replay are those of its
    first start.

    Example: fraud replay start better --model card-fraud/2
    """
    from deploy.replay import inputs, record, running, switching
    from loadtests.rig.report import saying

    live = environment.settings(JobSettings)
    found = record.find(live.work_dir, name)
    if found is None:
        found = _planned(name, simple_policy, start).saved()
    else:
        found, live = record.load(live, name)
        if simple_policy.is_given or replace(start, partial=False) != Start():
            raise ReplayError(f"{name} was started with other options, which stay; drop it, or omit them")
        found = switching.call_off(live, found)
    stop = threading.Event()
    with saying(f"replay {name}") as say:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        inputs.create(live, found)
        limits = None if urgent else running.Limits(most_behind, slowest_ms / 1000)
        done = running.run(live, found, say, stop, limits, follow=follow)
    if not done.is_done:
        typer.echo(f"stopped; `fraud replay start {name}` continues")
        return
    typer.echo(f"decided to the end of the range; `fraud replay compare {name}` shows what differs")


@app.command("status")
def status_command(
    name: Annotated[str, typer.Argument(help="A replay; default: all of them")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each")] = False,
) -> None:
    """Show how far replays are, what they have written, and who writes the live output.

    Example: fraud replay status
    """
    from deploy.replay import record, status

    live = environment.settings(JobSettings)
    names = [name] if name else list(record.names(live.work_dir))
    if not names and not as_json:
        typer.echo(f"no replays in {live.work_dir}")
    for each in names:
        seen = status.look(*record.load(live, each))
        typer.echo(json.dumps(seen) if as_json else status.line(seen))


@app.command("compare")
def compare_command(
    name: Name,
    limits: Annotated[
        Path | None, typer.Option(help='JSON: {"differences.only_live": {"max": 10}}; exit status 1 beyond')
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write the report to this JSON file")] = None,
    page: Annotated[Path | None, typer.Option(help="Write the report as one HTML page")] = None,
) -> None:
    """Compare the replay's alerts with the live ones, and name the first cause of each difference.

    Example: fraud replay compare better --page better.html
    """
    from deploy.replay import record
    from deploy.replay.comparison import compare
    from deploy.replay.comparison import page as pages
    from deploy.replay.comparison import report as reports
    from loadtests.rig import report as reporting

    require_place(report, page)
    replay, live = record.load(environment.settings(JobSettings), name)
    wanted = reports.limits_in(limits) if limits is not None else {}
    with reporting.saying(f"replay {name}") as say:
        result = compare.compare(live, replay, say)
    faults = reports.broken(result, wanted)
    reporting.write(report, {**result, "limits_broken": faults})
    if page is not None:
        reporting.write_text(page, pages.page(result, faults))
    for line in reports.lines(result, faults):
        typer.echo(line)
    if faults:
        raise typer.Exit(1)


@app.command("switch")
def switch_command(
    name: Name,
    partial: Annotated[
        bool, typer.Option("--partial", help="Accept a state without the beginning of the log")
    ] = False,
) -> None:
    """Let the replay's decisions continue the live output; this process becomes the job.

    The live job ends with status 3 once it is fenced. Run the command in the place of `fraud job run`; it may
    be repeated. It prints the variables that have to become those of job and sidecar.

    Example: fraud replay switch better
    """
    from deploy.replay import record, switching
    from service.settings import ServiceSettings

    replay, live = record.load(environment.settings(JobSettings), name)
    demands = environment.settings(ServiceSettings).demands
    settings = switching.begin_switch(live, replay, demands, takes_partial=partial)
    for variable, value in switching.to_keep(settings, live).items():
        typer.echo(f"export {variable}={shlex.quote(value)}")
    switching.become(replay.release, settings)


@app.command("back")
def back_command(name: Name) -> None:
    """Let the former live job continue the output after a switch; this process becomes the job.

    Example: fraud replay back better
    """
    from deploy.replay import record, switching

    replay, live = record.load(environment.settings(JobSettings), name)
    switching.become("", switching.begin_back(live, replay))


@app.command("drop")
def drop_command(
    name: Name,
    end_way_back: Annotated[
        bool, typer.Option("--end-way-back", help="After a switch: give up the way back")
    ] = False,
) -> None:
    """Delete a replay's topics, consumer group, checkpoint and files, and list them.

    Example: fraud replay drop better
    """
    from deploy.replay import dropping, record

    replay, live = record.load(environment.settings(JobSettings), name)
    dropping.drop(live, replay, ends_way_back=end_way_back, wrote=typer.echo)


def _planned(name: str, simple_policy: SimplePolicy, start: Start) -> "Replay":
    """Print the plan of a new replay, and return its record."""
    from deploy.replay import plan, record, rollout
    from models.policy import Policy
    from service.rollouts.options import draft_of

    live = environment.settings(JobSettings)
    policy: Policy | None = None
    if start.policy is not None or simple_policy.is_given:
        policy = draft_of(start.model or "/", start.policy, simple_policy, "canary", 10_000)[0].policy
    file = record.file_of(live.work_dir, name)
    if file.exists():
        raise ReplayError(f"there is a replay {name} already; `fraud replay start {name}` continues it")
    delay_days = start.label_delay_days
    new = record.Replay(
        name, live.job_id, live.checkpoint, live.key_groups, live.topics.model_rollouts,
        start.key_groups or live.key_groups, {}, start.start_from, start.archive, start.release,
        label_delay_ms=None if delay_days is None else round(delay_days * DAY_MS),
        facts=live.topics.merchant_facts, live_label_delay_ms=live.merchant_delay_ms, file=file,
    )  # fmt: skip
    if start.model or policy:
        changed = rollout.replaced(new.changed_facts(live), start.model, policy, start.release)
        new = replace(new, rollout=changed)
    facts = plan.gather(live, new)
    made = plan.made(live, new, facts, partial=start.partial)
    for line in made.lines:
        typer.echo(line)
    if made.refusals:
        raise ReplayError("; ".join(made.refusals))
    ends = {str(part): end for part, end in facts.ends.items()}
    return replace(new, ends=ends, is_partial=made.is_partial)
