"""Two supervisors each keep an instance of one job alive; the instances fence each other."""

import threading
import time

from loadtests.faults.errors import FaultError
from loadtests.faults.job_process import JobProcess
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign

RESTARTS = 3
"""Of an instance that the other one has disturbed before it was stopped."""
RESTART_S = 2.0
"""Within which a supervisor has started the next one."""


class Supervisor:
    """Starts the job whenever it has ended, as systemd or Kubernetes would.

    Args:
        scene: whose job.
        name: for the journal and its working directory.
        job: that runs already; None: it starts one.
    """

    def __init__(self, scene: Scene, name: str, job: JobProcess | None = None) -> None:
        self._scene, self._name = scene, name
        self._stop = threading.Event()
        self.job = job or self._start()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def stop(self) -> None:
        """Start it no more."""
        self._stop.set()

    def join(self) -> None:
        """Wait until it has noticed."""
        self._thread.join()

    def _start(self) -> JobProcess:
        installed = self._scene.installed
        job = installed.start(work_dir=installed.directory / f"work-{self._name}")
        self._scene.others.append(job)
        return job

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            if not self.job.runs:
                error = self.job.error or self.job.log.strip().splitlines()[-1]
                self._scene.journal.tell(self._name, f"exit status {self.job.ended()}: {error[:160]}")
                self.job = self._start()


class _Pair:
    """The two supervisors of the day."""

    def provoke(self, scene: Scene) -> None:
        """Let them begin."""
        self._first = Supervisor(scene, "first", scene.job)
        self._second = Supervisor(scene, "second")

    def mend(self, scene: Scene) -> None:
        """End the second, and leave the first."""
        self._second.stop()
        self._second.join()
        self._second.job.kill()
        for _ in range(RESTARTS):  # an epoch that the second has begun ends the first's instance once more
            try:
                scene.installed.caught_up(self._first.job)
                break
            except FaultError:
                time.sleep(RESTART_S)
        self._first.stop()
        self._first.join()
        scene.job = self._first.job


_pair = _Pair()
DAY = Gameday(
    name="fenced",
    entries=("restarts",),
    symptom="Two instances of the job fence each other",
    provoked_by="a second supervisor starts the same job; both start theirs again whenever it ends",
    mended_by="the second supervisor is stopped, with its instance",
    expected=Expected(
        signs=(Sign("fraud_job_restarts_total", 3, grows=True),),
        rules=("FraudJobRestarts",),
    ),
    provoke=_pair.provoke,
    mend=_pair.mend,
    patience_s=360,
)
