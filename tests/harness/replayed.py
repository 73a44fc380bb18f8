"""An installation with a live job and replays of it, for tests with real servers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local.child import Child
from deploy.local.launch import FRAUD
from deploy.local.stack import Endpoints
from deploy.local.waiting import Patience
from deploy.replay import record
from deploy.replay.record import Replay
from loadtests.audit.commits import source_in
from loadtests.audit.comparison import output_topics
from loadtests.faults.acls import grant
from loadtests.faults.installation import Installation, world
from loadtests.faults.relay import Relay
from loadtests.simulator import profiles
from streaming_job.contracts.topic import Component
from streaming_job.contracts.topics import Topics
from streaming_job.permissions import needed
from streaming_job.runtime.failpoints import VARIABLE
from streaming_job.takeover.handover import TOOK_OVER


class Replayed:
    """An installation with a live job, and the command line of its replays."""

    def __init__(self, relay: Relay) -> None:
        self.relay, self.installed = relay, relay.installed
        self.settings: dict[str, object] = {"max_records": 200, "epoch_s": 2.0}
        self.processes: list[Child] = []
        assert self.installed.stack.guarded is not None
        servers, kafka = self.installed.stack.guarded
        grant(
            self.installed.stack.bootstrap_servers,
            Component.REPLAY,
            needed(Component.REPLAY, self.installed.settings),
        )
        self.login: dict[str, object] = {
            "bootstrap_servers": servers,
            "kafka": {**kafka, "sasl.username": Component.REPLAY.value},
        }

    def command(self, *arguments: str, group: str = "replay", **changes: object) -> Child:
        """Start a command of a group with the settings of the live job, by default of `fraud replay`.

        The latter has the permissions of replays; for a switch and the way back those of the job, too.
        """
        if group == "replay":
            live = self.installed.settings
            becomes_live = arguments[0] in ("switch", "back")
            if becomes_live and record.find(live.work_dir, arguments[1]) is not None:
                for settings in (live, self.record(arguments[1]).successor(live)):
                    allowed = needed(Component.JOB, settings)
                    grant(self.installed.stack.bootstrap_servers, Component.REPLAY, allowed)
            changes = {**self.login, **changes}
        directory = self.installed.directory
        (directory / "crash-points").mkdir(exist_ok=True)
        number = len(self.processes)
        process = Child(
            "the replay",
            [*FRAUD, group, *arguments],
            directory / f"command-{number}.log",
            {
                **self.installed.environment(**{**self.settings, **changes}),
                VARIABLE: str(directory / "crash-points"),
            },
        )
        self.processes.append(process)
        return process

    def done(self, *arguments: str, status: int = 0, group: str = "replay", **changes: object) -> str:
        """Run a command to its end; return its output."""
        process = self.command(*arguments, group=group, **changes)
        assert process.exit_code() == status, process.log
        return process.log

    def record(self, name: str) -> Replay:
        """The record of a replay."""
        return record.load(self.installed.settings, name)[0]

    def topics(self, name: str) -> Topics:
        """The topics of a replay."""
        return self.record(name).topics(self.installed.topics)

    def outputs(self, topics: Topics) -> dict[tuple[Any, ...], tuple[bytes | None, bytes | None]]:
        """Key and value of each output record, by its input; of shadow alerts and the like by all names."""
        found: dict[tuple[Any, ...], tuple[bytes | None, bytes | None]] = {}
        for number, topic in enumerate(output_topics(topics)):
            for each in self.installed.read(topic):
                content = json.loads(each.value or b"")
                name = number, *source_in(content), content.get("rollout_id"), content.get("challenger")
                assert name not in found, f"{topic} has two records of {name}"
                found[name] = each.key, each.value
        return found

    def compared(self, name: str, limits: dict[str, Any], status: int = 0) -> dict[str, Any]:
        """The report of a comparison that keeps limits, or with status 1 does not."""
        files = {option: self.installed.directory / option for option in ("limits", "report", "page")}
        files["limits"].write_text(json.dumps(limits))
        options = [word for option, file in files.items() for word in (f"--{option}", str(file))]
        self.done("compare", name, *options, status=status)
        assert "<h1>Replay" in files["page"].read_text()
        report: dict[str, Any] = json.loads(files["report"].read_text())
        return report

    def take_over(self, successor: Child) -> None:
        """Wait until a job has taken over from the relay's."""
        patience = Patience(400.0, 0.05)
        while TOOK_OVER not in successor.log:
            successor.check()
            patience.wait(lambda: AssertionError(successor.log))
        before, self.relay.job = self.relay.job, successor
        assert before.exit_code() == 3, before.log


@contextmanager
def replays(stack: Endpoints, topics: Topics, directory: Path) -> Iterator[Replayed]:
    """Start a live job with a rollout and profiles; at the end all processes are killed."""
    installed = Installation(stack, topics, directory)
    installed.roll_out()
    profiles.load(stack.postgres_dsn, world())
    with replays_of(installed) as result:
        yield result


@contextmanager
def replays_of(installed: Installation) -> Iterator[Replayed]:
    """Start the live job of an installation; at the end all processes are killed."""
    result = Replayed(Relay(installed))
    try:
        yield result
    finally:
        for process in (*result.processes, result.relay.job):
            process.kill()
