"""Start of a demo: from an empty or unfinished data directory to a running system."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from deploy.demo import children, compromise, environment, mlflow_ui, state
from deploy.demo.champion import roll_out, start_training, wait_for_champion
from deploy.demo.options import DemoError, Options
from deploy.demo.replay_tour import job_to_run
from deploy.demo.state import Run
from deploy.demo.steps import Steps
from deploy.demo.waiting import wait, wait_until_caught_up
from deploy.local import health, stack
from deploy.local.ports import HOST, free_port
from deploy.local.stack import Endpoints
from deploy.local.state import ALL, Service
from deploy.prometheus import server
from loadtests.audit.topic_log import TopicLog
from loadtests.simulator import profiles
from loadtests.simulator.replay import Replay
from loadtests.simulator.world import World
from service.health.groups import end_offsets
from service.health.lag_watch import LagWatch
from service.progress_reader import ProgressReader
from service.settings import ServiceSettings
from streaming_job.settings import JobSettings

AUDITED_SHARE = 0.2
"""Share of the cards that the continuous audit judges."""
AUDITED_BEHIND_S = 30
"""Minimum age of audited records, seconds; low, because a demo is short."""


@dataclass
class System:
    """The running parts of a demo, and the watchers of the job."""

    endpoints: Endpoints
    settings: JobSettings
    lag: LagWatch
    progress: ProgressReader
    world: World | None
    """The simulated world; None when a file is replayed."""
    replay: Replay | None
    """The replayed file; None when traffic is simulated."""
    links: dict[str, str]
    """URLs by name."""


def begin(options: Options, steps: Steps) -> Run:
    """Return the run to continue, or a new one on an emptied directory; print the fate of an earlier run.

    Raises:
        DemoError: the directory was not made by a demo; or, without `options.fresh`, demo.json is damaged or
            an unfinished run has other options.
    """
    try:
        previous = state.load(options.data_dir)
    except DemoError:
        if not options.fresh:
            raise
        previous = Run(options.data_dir, {}, time.time())
    if previous is not None and not previous.finished and not options.fresh:
        differing = state.differences(previous, options)
        if differing:
            raise DemoError(
                f"an unfinished demo in {options.data_dir} has {', '.join(differing)}; "
                "give the same options to continue it, or --fresh"
            )
        previous.restarts += 1
        previous.save()
        since = datetime.fromtimestamp(previous.begun).strftime("%Y-%m-%d %H:%M:%S")
        steps.print_line(f"Found an unfinished demo in {options.data_dir}, begun at {since}: continuing it.")
        stopped = children.stop_leftovers(previous)
        if stopped:
            steps.print_line(f"Stopped its processes that were still running: {', '.join(stopped)}.")
        return previous
    if previous is not None:
        fate = "ended" if previous.finished else "was killed and is dropped"
        steps.print_line(f"The last demo in {options.data_dir} {fate}: starting from the beginning.")
        children.stop_leftovers(previous)
    state.clear(options.data_dir)
    run = Run(options.data_dir, options.story(), time.time())
    run.save()
    return run


@contextmanager
def system(options: Options, run: Run, steps: Steps) -> Iterator[System]:
    """Start all processes and the watchers; at the end of the block only the watchers stop."""
    replaying = options.replay is not None
    start_training(options, run)
    with steps.step("Kafka" if replaying else "Kafka and Postgres") as doing:
        services: list[Service] = ["kafka"] if replaying else ["postgres", "kafka"]
        endpoints = stack.up(options.data_dir, services=services, replay=replaying, progress=doing)
    delay_ms = compromise.LABEL_DELAY_MS if options.merchant_labels else None
    settings = environment.job_settings(
        options.data_dir,
        endpoints,
        free_port(),
        replays=replaying,
        label_delay_ms=delay_ms,
    )
    watched = ServiceSettings(
        job_id=settings.job_id, bootstrap_servers=settings.bootstrap_servers, offsets_interval_s=0.5
    )
    progress = ProgressReader(watched)
    lag = LagWatch(watched, lambda: end_offsets(progress.groups))
    # wait until the job's consumer group has a coordinator: TopicLog retries until then, whereas LagWatch
    # takes the error for a broker that does not answer, and makes new clients
    TopicLog(settings.bootstrap_servers).committed(settings.job_id, watched.inputs)
    with progress, lag:
        if options.merchant_labels and options.replay and not options.replay.exists():
            with steps.step(f"{compromise.DAYS} days of traffic with compromised merchants"):
                compromise.write(options.replay, options.seed, options.cards, options.rate)
        replay = Replay(options.replay) if options.replay else None
        world = None if replaying else _profiles(options, run, steps, lag, settings)
        if not run.champion:
            with steps.step("model, trained on history and registered") as doing:
                champion = wait_for_champion(options, run, doing)
                roll_out(champion, settings, replay)
                run.champion = True
                run.save()
            steps.print_line(
                f"    {champion.learnt_from}; AUC ROC {champion.auc_roc:.3f} on the newest quarter"
            )
        links = _processes(options, run, steps, lag, progress, settings)
        yield System(stack.endpoints(options.data_dir), settings, lag, progress, world, replay, links)


def _profiles(options: Options, run: Run, steps: Steps, lag: LagWatch, settings: JobSettings) -> World:
    """Load the profiles into Postgres, and wait until Debezium has written them to their topic."""
    # Debezium starts when all rows are in the table: one snapshot is quicker than streaming each insert
    with steps.step(f"profiles of {options.cards:,} cards in Postgres") as doing:
        doing("simulating cards and merchants")
        world = World.create(options.seed, options.cards)
        rows = int(world.cards.has_profile.sum())
        if not run.profiles_loaded:
            doing("loading")
            profiles.load(stack.endpoints(options.data_dir).postgres_dsn, world)
            run.profiles_loaded = True
            run.save()
    with steps.step("profiles on their topic, by Debezium") as doing:
        stack.up(options.data_dir, services=ALL, progress=doing)

        def arrived() -> int:
            partitions = lag.lag.partitions if lag.lag else ()
            return sum(part.end for part in partitions if part.topic == settings.topics.profiles)

        wait(
            lambda: arrived() >= rows,
            "the profiles do not arrive on their topic",
            arrived,
            lambda: health.check(options.data_dir),
        )
    return world


def _processes(
    options: Options, run: Run, steps: Steps, lag: LagWatch, progress: ProgressReader, settings: JobSettings
) -> dict[str, str]:
    """Start job and sidecar and, if wanted, Prometheus, audit and MLflow's web page; return the URLs."""
    data_dir, env = options.data_dir, settings.variables()
    environment.write_script(data_dir, settings)
    with steps.step("streaming job and sidecar") as doing:
        doing("starting Spark")
        before, started = children.log_size(data_dir, children.JOB), time.time()
        job = job_to_run(settings).variables()
        children.start(run, children.JOB, ["deploy.cli", "job", "run"], job)
        port = free_port()
        children.start(run, children.SIDECAR, ["deploy.cli", "serve", "--port", str(port)], env)
        wait(
            lambda: (
                children.logged(data_dir, children.JOB, f"job {settings.job_id} runs", before) is not None
            ),
            "the job does not start",
            lambda: children.log_size(data_dir, children.JOB),
            lambda: children.check(run),
        )
        # transactions are fed only when the job has read its tables: no score comes from half-read tables
        wait_until_caught_up(run, lag, progress, started, doing)
    links = {
        "sidecar": f"http://{HOST}:{port}/",
        "metrics": f"http://{HOST}:{port}/metrics",
        "Spark UI": f"http://{HOST}:{settings.ui_port}/",
    }
    if options.with_prometheus:
        targets = data_dir / children.PROMETHEUS / "audit-targets.json"
        targets.parent.mkdir(exist_ok=True)
        # merchant features depend on all cards, so a sample of the cards cannot be audited alone
        audited = [] if options.merchant_labels else [_audit(run, env)]
        targets.write_text(json.dumps([{"targets": audited}]))
        links["Prometheus"] = _prometheus(run, port, targets)
    if options.with_mlflow_ui:
        with steps.step("MLflow's web page"):
            links["MLflow"] = mlflow_ui.start(run)
    return links


def _audit(run: Run, env: Mapping[str, str]) -> str:
    """Start the continuous audit of AUDITED_SHARE of the cards; return host:port of its metrics."""
    port = free_port()
    options = ["--share", str(AUDITED_SHARE), "--behind", str(AUDITED_BEHIND_S), "--metrics-port", str(port)]
    children.start(run, children.AUDIT, ["deploy.cli", "verify", "--follow", *options], env)
    return f"{HOST}:{port}"


def _prometheus(run: Run, sidecar_port: int, audit: Path) -> str:
    """Start Prometheus with the project's rules; return its URL."""
    config = audit.with_name("prometheus.yml")
    server.write_config(config, f"{HOST}:{sidecar_port}", audit=audit)
    listen = f"{HOST}:{free_port()}"
    storage = children.marker(run.data_dir, children.PROMETHEUS)
    children.start_program(run, children.PROMETHEUS, server.command(config, storage, listen))
    return f"http://{listen}/"
