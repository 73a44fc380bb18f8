"""Game day: two supervisors restart instances of one job, which fence each other."""

import time
from contextlib import suppress

from loadtests.faults.errors import FaultError
from loadtests.faults.job_process import JobProcess
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign
from service.background import Background

RESTARTS = 3
"""How often to wait for the first instance to catch up: fenced before the remedy, it may end once more."""
RESTART_S = 2.0
"""Time in which a supervisor starts the next instance."""


class Supervisor(Background):
    """Restarts the job whenever it ends, as systemd or Kubernetes would.

    Args:
        name: name in the journal, and suffix of `work_dir`.
        job: a running job; None: starts one.
    """

    def __init__(self, scene: Scene, name: str, job: JobProcess | None = None) -> None:
        super().__init__(name, patience_s=None)
        self._scene, self._name = scene, name
        self.job = job or self._start_job()
        self.start()

    def _start_job(self) -> JobProcess:
        installed = self._scene.installed
        job = installed.start(work_dir=installed.directory / f"work-{self._name}")
        self._scene.others.append(job)
        return job

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            if not self.job.runs:
                error = self.job.error or (self.job.log.strip() or "its log is empty").splitlines()[-1]
                self._scene.journal.add(self._name, f"exit status {self.job.exit_code()}: {error[:160]}")
                self.job = self._start_job()


class _Pair:
    """The two supervisors of the day."""

    def provoke(self, scene: Scene) -> None:
        """Start both supervisors."""
        self._first = Supervisor(scene, "first", scene.job)
        self._second = Supervisor(scene, "second")

    def mend(self, scene: Scene) -> None:
        """Stop the second supervisor and its instance.

        When the first instance has caught up, stop its supervisor too; the instance runs on.
        """
        self._second.stop()
        self._second.job.kill()
        try:
            self._wait_for_first(scene)
        finally:
            self._first.stop()
        scene.job = self._first.job

    def _wait_for_first(self, scene: Scene) -> None:
        for _ in range(RESTARTS - 1):  # an epoch begun by the second instance ends the first once more
            with suppress(FaultError):
                scene.installed.caught_up(self._first.job)
                return
            time.sleep(RESTART_S)
        scene.installed.caught_up(self._first.job)


_pair = _Pair()
DAY = Gameday(
    name="fenced",
    entries=("restarts",),
    symptom="Two instances of the job fence each other",
    provoked_by="two supervisors run the same job, and each restarts its instance whenever it ends",
    mended_by="the second supervisor is stopped, with its instance",
    expected=Expected(
        signs=(Sign("fraud_job_restarts_total", 3, grows=True),),
        rules=("FraudJobRestarts",),
    ),
    provoke=_pair.provoke,
    mend=_pair.mend,
    patience_s=360,
)
