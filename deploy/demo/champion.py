"""The first champion: trained in the background while the servers start, then rolled out."""

import time

from deploy.demo import children, environment, training
from deploy.demo.options import DemoError, Options
from deploy.demo.state import Run
from deploy.demo.training import Champion
from deploy.local import processes
from deploy.local.console import Progress
from deploy.local.waiting import Patience
from loadtests.simulator.replay import Replay
from loadtests.simulator.rollouts import publish
from models.policy import Policy
from models.rollouts.events import installation
from streaming_job.settings import JobSettings

POLL_S = 0.05
TRAINING_S = 600.0


def start_training(options: Options, run: Run) -> None:
    """Start the training in the background, unless this run was continued and already has its models."""
    result = training.file_of(options.data_dir, training.CHAMPION)
    if run.champion or result.exists():
        return
    uri = environment.tracking_uri(options.data_dir)
    command = ["deploy.demo.training", *training.arguments(options, uri, int(time.time() * 1_000))]
    children.start(run, children.TRAINING, command, {})


def wait_for_champion(options: Options, run: Run, doing: Progress) -> Champion:
    """Wait for the training and return its champion.

    Raises:
        DemoError: the training failed, or takes too long.
    """
    result = training.file_of(options.data_dir, training.CHAMPION)
    patience = Patience(TRAINING_S, POLL_S)
    log = children.log_file(options.data_dir, children.TRAINING)
    while processes.running(run.children.get(children.TRAINING)) is not None:
        doing("training")
        patience.wait(lambda: DemoError(f"no model after {TRAINING_S:.0f} s; see {log}"))
    run.children.pop(children.TRAINING, None)
    champion = training.load(result)
    if champion is None:
        raise children.exit_error(options.data_dir, children.TRAINING)
    return champion


def roll_out(champion: Champion, settings: JobSettings, replay: Replay | None) -> None:
    """Publish the rollout that makes the champion decide."""
    policy = Policy(champion.threshold, champion.max_count_5m)
    name, now_ms = f"demo-{champion.ref.version}", int(time.time() * 1_000)
    events = installation(champion.ref, policy, name, "fraud demo", now_ms)
    # arrivals of a replay are the file's times: the rollout must precede them
    stamp = max(replay.first_ms - 1, 0) if replay else None
    publish(events, settings.bootstrap_servers, settings.topics.model_rollouts, timestamp_ms=stamp)
