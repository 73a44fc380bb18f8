"""The tour of `fraud demo --replay-model`: a better model decides the log again, takes over, and gives back.

It runs the commands of docs/replay.md, and prints them with their output, while transactions stream. Only
switch and way back are started as the demo starts its job, because the demo has to know their processes.
"""

import json
import re
from collections.abc import Callable
from shlex import join

from deploy.demo import children, training
from deploy.demo.options import DemoError
from deploy.demo.state import Run
from deploy.demo.tour import Tour
from deploy.demo.training import BETTER
from deploy.local import launch, processes
from deploy.local.child import Child
from deploy.replay import record, switching
from service.settings import ServiceSettings
from streaming_job.settings import JobSettings
from streaming_job.takeover.handover import TOOK_OVER

TRAFFIC_S = 30.0
"""Time for which transactions stream before the replay begins, so that there is a log to replay."""
DECIDES_S = 15.0
"""Time for which the replay's job decides before the way back, and the former job before the load ends."""
SLOWEST_MS = "2000"
"""Latency beyond which the replay waits for the live job: more than usual, as both start on one machine."""
PROGRESS = re.compile(r"\d\d:\d\d:\d\d ")
"""Begins the lines of a command that only say how far it is."""


class ReplayTour(Tour):
    """Replays the log with the better model, compares it, switches to it, and goes back."""

    def __init__(self, settings: JobSettings, run: Run, print_line: Callable[[str], None]) -> None:
        super().__init__("replay", print_line)
        self._settings, self._run_state, self._data_dir = settings, run, run.data_dir

    def _show(self) -> None:
        if was_switched(self._settings):
            self._say("it was shown before the demo was killed; the former job has gone on")
            return
        self._say(f"the log begins, {TRAFFIC_S:.0f} s")
        self._stream(TRAFFIC_S)
        self._command("start", BETTER, *self._how(), "--slowest-ms", SLOWEST_MS)
        page, report = self._data_dir / f"{BETTER}.html", self._data_dir / f"{BETTER}-compared.json"
        self._command("compare", BETTER, "--page", str(page), "--report", str(report))
        compared = json.loads(report.read_text())
        self.results["compared"] = {name: compared[name] for name in ("equal", "differences")}
        replay, live = record.load(self._settings, BETTER)
        demands = ServiceSettings(bootstrap_servers=live.bootstrap_servers).demands
        switched = switching.begin_switch(live, replay, demands, takes_partial=False)
        self.results["switch"] = self._take_over("switch", switched)
        self._say(f"{BETTER} decides, {DECIDES_S:.0f} s")
        self._stream(DECIDES_S)
        replay, live = record.load(self._settings, BETTER)
        self.results["back"] = self._take_over("back", switching.begin_back(live, replay))
        self._say(f"the former job decides, {DECIDES_S:.0f} s")
        self._stream(DECIDES_S)

    def _how(self) -> list[str]:
        """Return the options of a new replay; none if a demo that was killed had started it."""
        if record.find(self._settings.work_dir, BETTER) is not None:
            return []
        model = training.trained(self._data_dir, BETTER)
        policy = ["--threshold", str(model.threshold), "--max-count-5m", str(model.max_count_5m)]
        return ["--model", str(model.ref), *policy]

    def _command(self, *arguments: str) -> None:
        """Run a command of `fraud replay`, and print its output but its progress."""
        self._say(f"$ fraud replay {join(arguments)}")
        log = children.log_file(self._data_dir, f"replay-{arguments[0]}")
        log.unlink(missing_ok=True)
        command = [*launch.FRAUD, "replay", *arguments]
        variables = children.of_python(self._settings.variables())
        with Child(f"fraud replay {arguments[0]}", command, log, variables, cwd=self._data_dir) as child:
            self._until(lambda: not child.runs, f"end of {child.name}")
            if child.ended_with != 0:
                raise DemoError(f"{child.name} failed; {log} ends with:\n{launch.tail(log)}")
        for line in log.read_text().splitlines():
            if PROGRESS.match(line) is None:
                self._say(f"  {line}")

    def _take_over(self, act: str, settings: JobSettings) -> str:
        """Start a job that takes over from the running one; return the line of its log that says so.

        It is not left half-way: if the load is ended meanwhile, it waits until one job is left.
        """
        self._say(f"$ fraud replay {act} {BETTER}")
        data_dir, run = self._data_dir, self._run_state
        before, former = children.log_size(data_dir, children.JOB), run.children[children.JOB]
        run.children[children.FORMER] = former
        children.start(run, children.JOB, ["deploy.cli", "job", "run"], settings.variables())
        said = self._until(
            lambda: children.logged(data_dir, children.JOB, TOOK_OVER, before), act, may_stop=False
        )
        self._until(lambda: processes.running(former) is None, "end of the former job", may_stop=False)
        children.stop(run, children.FORMER)
        self._say(f"  {said}")
        return said


def was_switched(settings: JobSettings) -> bool:
    """Return whether a demo that was killed had begun the switch."""
    replay = record.find(settings.work_dir, BETTER)
    return replay is not None and bool(replay.live_query)


def job_to_run(settings: JobSettings) -> JobSettings:
    """Return the settings with which a demo's job starts: after a switch it goes back."""
    if not was_switched(settings):
        return settings
    replay, live = record.load(settings, BETTER)
    return switching.begin_back(live, replay)
