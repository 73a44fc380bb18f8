"""The desk: the one way to write rollout events, for the API, the command line and the guards.

Step 1  read     the newest progress of the job, and the rollout topic to its end
Step 2  draw     what would be written, or a refusal that names the check: nothing is written
Step 3  open     the one transactional writer: an older one, wherever it is, cannot commit any more
Step 4  read     what came since step 1; draw again
Step 5  write    events and audit in one Kafka transaction; fenced: nothing was written, from step 3 again
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from models.rollouts.events import Event, Type
from models.rollouts.machine import TRIED
from service.rollouts import checks, drawing, reading
from service.rollouts.assessment import assess
from service.rollouts.errors import DeskError, RefusedError, StaleError, UnansweredError
from service.rollouts.history import History
from service.rollouts.model_registry import ModelRegistry
from service.rollouts.reading import Job
from service.rollouts.requests import GUARD, Actor, Proposal, Receipt, Refs, Step, Stop
from service.rollouts.topic import KafkaRollouts, Rollouts
from service.settings import ServiceSettings

log = logging.getLogger(__name__)
Draw = Callable[[History, Job], tuple[Event, ...] | Receipt]
ATTEMPTS = 4
"""Of the steps 3 to 5."""


class Desk:
    """Writes the events of a job's rollouts; any number of desks may be open, anywhere."""

    def __init__(
        self,
        settings: ServiceSettings,
        clock: Callable[[], float] = time.time,
        job: Callable[[], Job] | None = None,
        registry: ModelRegistry | None = None,
        rollouts: Rollouts | None = None,
    ) -> None:
        """A desk; it connects when it is asked something.

        Args:
            settings: where.
            clock: seconds since 1970-01-01 UTC.
            job: tells what the job's newest progress says; default: the topic is read.
            registry: of the models; default: that of the settings.
            rollouts: the topic and its audit; default: those of the settings.
        """
        self._settings, self._clock = settings, clock
        self._rollouts = rollouts or KafkaRollouts(settings, clock)
        self._job = job or (lambda: reading.job(settings))
        self._registry = registry or ModelRegistry(settings.mlflow_tracking_uri)

    def look(self) -> tuple[History, Job]:
        """The rollout topic to its end, and what the job says.

        Raises:
            DeskError: they cannot be read now.
        """
        job = self._job()
        return self._rollouts.read(job.set_aside, History()), job

    def propose(self, asked: Proposal, actor: Actor) -> Receipt:
        """Open a rollout, whose models have passed every check.

        Raises:
            DeskError: names the check that was not passed.
        """
        with self._noting("rollout.proposed", asked.rollout_id or asked.challengers[0].model, actor):
            return self._propose(asked, actor)

    def take(self, asked: Step, actor: Actor) -> Receipt:
        """Write one more event of a rollout.

        Raises:
            DeskError: names the check that was not passed.
        """
        with self._noting(f"rollout.{asked.type.value}", asked.rollout_id, actor):
            return self._take(asked, actor)

    def _propose(self, asked: Proposal, actor: Actor) -> Receipt:
        settings = self._settings
        checks.require_sound(asked)
        asked = replace(asked, guards=checks.guards(asked.guards))
        names = {one.model for one in asked.challengers}
        refs: Refs = {name: self._registry.find(name) for name in sorted(names)}

        if len(refs) == 1:  # guards are the rollout's: of several models each has scores of its own
            (only,) = refs.values()
            asked = replace(asked, guards=checks.against_training(asked.guards or {}, self._registry, only))

        def draw(history: History, job: Job) -> tuple[Event, ...] | Receipt:
            return drawing.proposal(history, asked, refs, actor, self._now_ms(), four_eyes=settings.four_eyes)

        history, job = self.look()
        drawn = draw(history, job)
        if isinstance(drawn, Receipt):
            return drawn
        for ref in refs.values():
            checks.require_features(ref, job.computed(self._clock()), settings.job_id)
            self._registry.verify(ref)
        return self._write(draw, actor, history, job)

    def _take(self, asked: Step, actor: Actor) -> Receipt:
        if asked.type in (Type.PROPOSED, Type.BREACHED):
            raise RefusedError("type", f"{asked.type} is no step that can be asked for; see docs/rollouts.md")

        def draw(history: History, job: Job) -> tuple[Event, ...] | Receipt:
            drawn = drawing.step(history, asked, actor, self._now_ms(), four_eyes=self._settings.four_eyes)
            if not isinstance(drawn, Receipt):
                self._require_evidence(history, job, drawn[0])
            return drawn

        history, job = self.look()
        drawn = draw(history, job)
        return drawn if isinstance(drawn, Receipt) else self._write(draw, actor, history, job)

    def stop(self, asked: Stop) -> Receipt:
        """End a rollout because of a guard: breached and rolled_back in one transaction, or the latter.

        Raises:
            DeskError: somebody else was faster, or the brokers do not answer.
        """

        def draw(history: History, _job: Job) -> tuple[Event, ...] | Receipt:
            return drawing.stop(history, asked, self._now_ms())

        history, job = self.look()
        draw(history, job)
        return self._write(draw, Actor(GUARD, origin=self._settings.job_id), history, job)

    def _require_evidence(self, history: History, job: Job, event: Event) -> None:
        """A canary begins on evidence; nothing goes on over a breach."""
        trial = history.line.trials[event.rollout_id]
        if event.type is Type.CANARY_SET:
            checks.require_judged(trial, assess(history, trial, job.groups), event.challenger)
        elif event.type is Type.RESUMED or (event.type is Type.PROMOTED and trial.phase in TRIED):
            checks.require_no_breach(trial, assess(history, trial, job.groups))

    def _write(self, draw: Draw, actor: Actor, history: History, job: Job) -> Receipt:
        for attempt in range(ATTEMPTS):
            write = self._rollouts.open()
            history = self._rollouts.read(job.set_aside, history)
            drawn = draw(history, job)
            if isinstance(drawn, Receipt):  # the same request, by another way, in this moment
                return drawn
            try:
                offsets = write(drawn, actor)
            except StaleError:
                # another writer was opened: what it has written, if anything, is read first
                if attempt + 1 == ATTEMPTS:
                    raise
                continue
            after = drawing.after(history.line, drawn)
            return drawing.receipt(after, drawn, tuple(offsets), repeated=False)
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def _noting(self, action: str, target: str, actor: Actor) -> Iterator[None]:
        """Have the audit tell of a request that is refused."""
        try:
            yield
        except UnansweredError:
            raise
        except DeskError as refusal:
            try:
                self._rollouts.note_refusal(action, target, actor, refusal)
            except DeskError as fault:
                log.error("the audit does not tell that %s of %s was refused: %s", action, target, fault)
            raise

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
