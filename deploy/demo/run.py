"""A whole demo, from the first server to the verified summary."""

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from types import FrameType

from rich.console import Console

from deploy.demo import bring_up, children, environment, state, summary
from deploy.demo.memory import MemorySampler
from deploy.demo.options import Options
from deploy.demo.session import Session
from deploy.demo.state import Run
from deploy.demo.steps import Steps
from deploy.local import stack
from deploy.local import state as stack_state
from deploy.local.files import replace_json
from feature_store.errors import FraudError
from loadtests import commands as audit


class Demo:
    """One call of `fraud demo`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._console = Console(highlight=False)
        self._steps = Steps(self._console)
        self._enough = threading.Event()
        self._may_end_gently = False

    def run(self) -> bool:
        """Run the demo; return whether the audit found nothing wrong.

        Raises:
            FraudError: the data directory cannot be used; or a part ended or failed: everything is stopped.
            KeyboardInterrupt: Ctrl-C or SIGTERM before the load, or a second one; everything is stopped.
        """
        environment.forget_callers_settings()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)
        with state.exclusive(self._options.data_dir):
            run = bring_up.begin(self._options, self._steps)
            memory = MemorySampler(lambda: self._pids(run))
            memory.start()
            finished = False
            try:
                clean = self._stream_and_verify(run, memory)
                finished = True
                return clean
            except KeyboardInterrupt:
                self._steps.print_line(
                    "The demo ended before its audit was over; the next `fraud demo` continues it."
                )
                raise
            finally:
                memory.stop()
                self._stop_all(run, keep_stack=self._options.keep and finished)

    def _stream_and_verify(self, run: Run, memory: MemorySampler) -> bool:
        options = self._options
        with bring_up.system(options, run, self._steps) as system:
            for name, url in system.links.items():
                self._steps.print_line(f"    {name:<9} {url}")
            session = Session(options, run, system, memory, self._console, self._enough)
            self._may_end_gently = True
            measured = session.stream()
        with self._steps.step("graceful stop of job and sidecar"):
            children.stop(run, children.SIDECAR)
            children.stop(run, children.JOB)
        begin = time.monotonic()
        verdict = audit.run(system.settings, console=self._console)
        self._steps.print_line(f"  verified in {time.monotonic() - begin:.1f} s")
        measured = replace(measured, peak_memory=memory.peak)
        summary.show(self._console, verdict, measured)
        report = summary.report(verdict, measured)
        for path in (options.data_dir / "report.json", options.report):
            if path is not None:
                replace_json(path, report)
        run.finished = True
        run.save()
        if not verdict.is_clean:
            self._steps.print_line(f"Logs and topics stay in {options.data_dir} until the next demo there.")
        return verdict.is_clean

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """End the load at the first SIGINT or SIGTERM, the demo at a second, or at one before the load."""
        if not self._may_end_gently or self._enough.is_set():
            raise KeyboardInterrupt
        self._enough.set()

    def _pids(self, run: Run) -> list[int]:
        servers = list(run.children.values())
        with suppress(FraudError):
            servers += stack_state.load(self._options.data_dir).servers.values()
        return [os.getpid(), *(server.pid for server in servers)]

    def _stop_all(self, run: Run, *, keep_stack: bool) -> None:
        for name in list(run.children):
            children.stop(run, name)
        if keep_stack:
            script = run.data_dir / "env"
            self._steps.print_line(f"The servers keep running; `. {script}` sets FRAUD_ variables for them.")
            self._steps.print_line(f"Stop them with `fraud stack down --data-dir {run.data_dir}`.")
            return
        with self._steps.step("stopping the servers") as doing:
            stack.down(run.data_dir, progress=doing)
