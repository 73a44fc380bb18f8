"""Connection of a run to locust: options, messages between master and workers, locust's events."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import gevent
from locust import events, runners

from feature_store.errors import FraudError
from loadtests.locust_run import locust_stats
from loadtests.locust_run.conductor import REPORT_S, Conductor
from loadtests.locust_run.lane import FAILED, Lane
from loadtests.locust_run.plan import LoadTestPlan, Share
from loadtests.locust_run.result import Result
from loadtests.locust_run.verdict import Bounds, failures
from streaming_job import environment as variables
from streaming_job.settings import JobSettings

OPTION = "tx_"


class Wiring:
    """What this locust process does in a run, as master, worker, or both."""

    def __init__(self) -> None:
        self.lane: Lane | None = None
        self.conductor: Conductor | None = None
        self.environment: Any = None
        """Locust's environment; set once it exists."""
        self._clients: list[str] = []
        self._refusal: dict[str, Any] | None = None

    # master

    def _options(self) -> dict[str, Any]:
        """Return locust's options for each field of a plan, unchecked."""
        options = vars(self.environment.parsed_options)
        return {name[len(OPTION) :]: value for name, value in options.items() if name.startswith(OPTION)}

    def lead(self) -> int:
        """Start a run; returns the number of workers."""
        runner = self.environment.runner
        local = isinstance(runner, runners.LocalRunner)
        self._clients = [] if local else [client.id for client in runner.clients.ready]
        lanes = 1 if local else len(self._clients)
        plan = LoadTestPlan.of(self._options())
        self.conductor = Conductor(plan, lanes, variables.settings(JobSettings), self._send)
        return lanes

    def refuse(self, fault: FraudError) -> None:
        """Write a result that says why there was no run, print the reason, and set locust's exit code."""
        plan = self._options()  # perhaps no valid plan: that may be the fault
        directory = Path(plan["directory"])
        directory.mkdir(parents=True, exist_ok=True)
        Result(plan, 0, fault=str(fault)).write(directory)
        print(f"error: {fault}", flush=True)
        self.environment.process_exit_code = fault.exit_code

    def _send(self, message: str, content: Any, lane: int) -> None:
        runner = self.environment.runner
        if isinstance(runner, runners.LocalRunner):
            runner.send_message(message, dict(content))
        else:
            runner.send_message(message, dict(content), client_id=self._clients[lane])

    def finish(self) -> None:
        """Write the result of the run that ends, print why it failed, and set locust's exit code.

        The exit code is 1 if there is a fault, a lost worker, or a figure outside the default bounds.
        """
        if self.conductor is None:
            return
        self.note_lost()  # locust may have stopped because the last worker was lost
        conductor, self.conductor = self.conductor, None
        result = conductor.result()
        result.write(Path(conductor.plan.directory))
        reasons = failures(result, Bounds())
        for line in reasons:
            print(f"load test failed: {line}", flush=True)
        self.environment.process_exit_code = 1 if reasons else 0

    def note_lost(self) -> None:
        """Record the workers that locust reports as missing, or no longer lists, as lost."""
        if self.conductor is None:
            return
        states = {
            client.id: client.state for client in getattr(self.environment.runner, "clients", {}).values()
        }
        for name in list(self._clients):
            if states.get(name, runners.STATE_MISSING) == runners.STATE_MISSING:
                self.conductor.lose(name, "no heartbeat")
                self._clients.remove(name)

    def watch_workers(self) -> None:
        """Check the master's workers for losses, twice a second."""
        while True:
            gevent.sleep(0.5)
            self.note_lost()

    # worker

    def prepare(self, environment: Any, msg: Any, **_: Any) -> None:
        """Start to encode this worker's share."""
        self.drop()
        order = msg.data
        share = Share(order["run"], order["lane"], order["lanes"])
        try:
            self.lane = Lane(LoadTestPlan.from_json(order["plan"]), share, variables.settings(JobSettings))
        except FraudError as fault:
            self._refusal = refused(share.lane, str(fault))

    def begin(self, environment: Any, msg: Any, **_: Any) -> None:
        """Start to send at the moment that the master gives."""
        if self.lane is not None:
            self.lane.begin(msg.data["start_s"])

    def drop(self) -> None:
        """Stop this worker's lane."""
        if self.lane is not None:
            self.lane.stop()
            self.lane = None
        self._refusal = None

    def report(self) -> dict[str, Any] | None:
        """Return this worker's report; None if it has no share of a run."""
        return self._refusal if self.lane is None else self.lane.report()

    def report_to_myself(self) -> None:
        """Add the reports of a locust process without workers to its own conductor."""
        while True:
            gevent.sleep(REPORT_S)
            if (report := self.report()) is not None and self.conductor is not None:
                self.conductor.add(report)


def refused(lane: int, error: str) -> dict[str, Any]:
    """Return the report of a worker that could not prepare."""
    counts = ("events", "sent", "sent_measured", "acknowledged", "acknowledged_at_end", "unsent", "alerts")
    state = {"lane": lane, "state": FAILED, "error": error, "at_s": 0.0, "ended_s": 0.0, "cpu_s": 0.0}
    return {**state, **dict.fromkeys(counts, 0)}


wiring = Wiring()


def connect() -> None:
    """Register with locust's events; called by the locustfile, once."""
    runners.WORKER_REPORT_INTERVAL = REPORT_S
    locust_stats.keep_digits()
    hooks: Any = events
    hooks.init_command_line_parser.add_listener(_options)
    hooks.init.add_listener(_init)
    hooks.test_stop.add_listener(_test_stop)
    hooks.quitting.add_listener(_test_stop)
    hooks.report_to_master.add_listener(_report)
    hooks.worker_report.add_listener(_take_report)


def _options(parser: Any) -> None:
    group = parser.add_argument_group(
        "load test of the job", "The job's environment variables FRAUD_... apply."
    )
    defaults = LoadTestPlan()
    for field in fields(LoadTestPlan):
        value = getattr(defaults, field.name)
        group.add_argument(
            f"--{OPTION}{field.name}".replace("_", "-"), dest=OPTION + field.name, type=type(value),
            default=value, help=f"see loadtests.locust_run.plan.LoadTestPlan.{field.name}",
        )  # fmt: skip


def _init(environment: Any, runner: Any, **_: Any) -> None:
    wiring.environment = environment
    if not isinstance(runner, runners.MasterRunner):
        runner.register_message("fraud_prepare", wiring.prepare)
        runner.register_message("fraud_begin", wiring.begin)
    if isinstance(runner, runners.LocalRunner):
        gevent.spawn(wiring.report_to_myself)
    if isinstance(runner, runners.MasterRunner):
        gevent.spawn(wiring.watch_workers)


def _test_stop(environment: Any, **_: Any) -> None:
    wiring.finish()
    if not isinstance(environment.runner, runners.MasterRunner):
        wiring.drop()


def _report(client_id: str, data: dict[str, Any]) -> None:
    if (report := wiring.report()) is not None:
        data["fraud"] = report


def _take_report(client_id: str, data: dict[str, Any]) -> None:
    if wiring.conductor is not None and "fraud" in data:
        wiring.conductor.add(data["fraud"])
