"""The desk: the only writer of rollout events, for the API, the command line and the guards.

Step 1  read     the newest progress of the job, and the rollout topic to its end
Step 2  draw     construct the events, or refuse: the refusal names the check, and no event is written
Step 3  open     the single transactional writer: it fences every older one, in any process
Step 4  read     records written since step 1, and construct the events again
Step 5  write    events and audit in one Kafka transaction; if fenced, nothing was written: repeat from step 3
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from models.rollouts.events import Event, Type
from models.rollouts.state import TRIED, Trial
from service.precision import trial_topics
from service.precision.trial import LabelCounts
from service.rollouts import checks, drawing, labelling, reading
from service.rollouts.assessment import Assessment, assess
from service.rollouts.errors import DeskError, FencedError, RefusedError, UnansweredError
from service.rollouts.history import History
from service.rollouts.model_registry import ModelRegistry
from service.rollouts.reading import Job
from service.rollouts.requests import GUARD, Actor, Proposal, Receipt, Refs, Step, Stop
from service.rollouts.topic import Rollouts
from service.settings import ServiceSettings

Draw = Callable[[History, Job], tuple[Event, ...] | Receipt]
PROPOSED = f"rollout.{Type.PROPOSED.value}"
"""Action of a proposal, in the audit."""
JUDGED = frozenset({Type.CANARY_SET, Type.RESUMED, Type.PROMOTED})
"""Steps that need the guards' assessment."""
ATTEMPTS = 6
"""Attempts of the steps 3 to 5."""
PAUSE_S = 0.05
"""Longest pause before the second attempt; it doubles with each attempt. Pauses are random, so that two desks
do not fence each other again and again."""


class Desk:
    """Writer of the events of a job's rollouts; any number of desks may exist, in any process."""

    def __init__(
        self,
        settings: ServiceSettings,
        clock: Callable[[], float] = time.time,
        job: Callable[[], Job] | None = None,
        registry: ModelRegistry | None = None,
        rollouts: Rollouts | None = None,
        labels: Callable[[Trial], LabelCounts | None] | None = None,
    ) -> None:
        """Create a desk; it connects at the first request.

        Args:
            job: returns the job's newest progress; default: reads the topic.
            registry: model registry; default: that of the settings.
            rollouts: rollout topic and audit; default: those of the settings.
            labels: returns the labelled cards of a rollout; default: reads the topics if a guard needs them.
        """
        self.settings, self._clock = settings, clock
        self._rollouts = rollouts or Rollouts(settings, clock)
        self._job = job or (lambda: reading.job(settings))
        self._registry = registry or ModelRegistry(settings.mlflow_tracking_uri)
        self._labels = labels
        self._turn = threading.RLock()  # the writers of one process would only fence each other

    def look(self) -> tuple[History, Job]:
        """Read the rollout topic to its end, and the job's newest progress."""
        job = self._job()
        return self._rollouts.read(job.set_aside, History()), job

    def assess(self, rollout_id: str) -> Assessment:
        """Judge a rollout's challengers by the newest progress and labels."""
        history, job = self.look()
        trial = drawing.find_trial(history.line, rollout_id)
        return assess(history, trial, job.groups, self._count_labels(history, trial))

    def propose(self, proposal: Proposal, actor: Actor) -> Receipt:
        """Open a rollout after every check of its models.

        Raises:
            DeskError: a check failed, or brokers or registry do not answer; `check` of the error says which.
        """
        target = proposal.rollout_id or proposal.challengers[0].model
        with self.auditing_refusals(PROPOSED, target, actor):
            return self._propose(proposal, actor)

    def take(self, step: Step, actor: Actor) -> Receipt:
        """Write one more event of a rollout.

        Raises:
            DeskError: a check failed, or the brokers do not answer; `check` of the error says which.
        """
        with self.auditing_refusals(f"rollout.{step.type.value}", step.rollout_id, actor):
            return self._take(step, actor)

    def _propose(self, proposal: Proposal, actor: Actor) -> Receipt:
        settings = self.settings
        checks.require_sound(proposal)
        guards = checks.guards(proposal.guards)
        names = {challenger.model for challenger in proposal.challengers}
        refs: Refs = {name: self._registry.find(name) for name in sorted(names)}

        # the drift guard compares with the training scores of one model: all challengers must have that model
        if len(refs) == 1:
            (only,) = refs.values()
            guards = checks.against_training(guards, self._registry, only)
        complete = replace(proposal, guards=guards)

        def draw(history: History, job: Job) -> tuple[Event, ...] | Receipt:
            return drawing.proposal(history, complete, refs, actor, self._now_ms(), settings.demands)

        history, job = self.look()
        drawn = draw(history, job)
        if isinstance(drawn, Receipt):
            return drawn
        for ref in refs.values():
            checks.require_features(ref, job.computed(self._clock()), settings.job_id)
            scorer = self._registry.verify(ref)
            checks.require_label_delay(scorer, job.label_delay_ms(self._clock()), settings.job_id)
        return self._write(draw, actor, history, job)

    def _take(self, step: Step, actor: Actor) -> Receipt:
        if step.type in (Type.PROPOSED, Type.BREACHED):
            raise RefusedError("type", f"a step {step.type} cannot be requested; see docs/rollouts.md")

        history, job = self.look()
        labels: LabelCounts | None = None
        if step.type in JUDGED and step.rollout_id in history.line.trials:
            # read labels once, before the writer is opened: there may be many
            labels = self._count_labels(history, history.line.trials[step.rollout_id])

        def draw(history: History, job: Job) -> tuple[Event, ...] | Receipt:
            drawn = drawing.step(history, step, actor, self._now_ms(), self.settings.demands)
            if not isinstance(drawn, Receipt):
                self._require_evidence(history, job, drawn[0], labels)
                if step.type is Type.WITHDRAWN:
                    computed = job.computed(self._clock())
                    checks.require_champion(history.line, step.rollout_id, computed, self.settings.job_id)
            return drawn

        drawn = draw(history, job)
        return drawn if isinstance(drawn, Receipt) else self._write(draw, actor, history, job)

    def stop(self, stop: Stop) -> Receipt:
        """End a rollout: write `breached` and `rolled_back` together, for a deadline `rolled_back` alone."""

        def draw(history: History, _job: Job) -> tuple[Event, ...] | Receipt:
            return drawing.stop(history, stop, self._now_ms())

        history, job = self.look()
        draw(history, job)
        return self._write(draw, Actor(GUARD, GUARD, self.settings.job_id), history, job)

    @contextmanager
    def auditing_refusals(self, action: str, target: str, actor: Actor) -> Iterator[None]:
        """Record the request if it is refused."""
        try:
            yield
        except UnansweredError:
            raise
        except DeskError as refusal:
            self._rollouts.note_refusal(action, target, actor, refusal)
            raise

    def _count_labels(self, history: History, trial: Trial) -> LabelCounts | None:
        """Return the labelled cards of a rollout; None if no guard needs them, or before `shadow_started`."""
        if self._labels is not None:
            return self._labels(trial)
        labelled = labelling.labelled_trial(history, trial)
        return None if labelled is None else trial_topics.read_once(self.settings, labelled, self._now_ms())

    def _require_evidence(self, history: History, job: Job, event: Event, labels: LabelCounts | None) -> None:
        """For a step of JUDGED, require that no guard is breached; for a canary, also that each has data.

        A rollout whose challengers do not score transactions yet may be promoted without an assessment.
        """
        trial = history.line.trials[event.rollout_id]
        if event.type is Type.CANARY_SET:
            checks.require_judged(trial, assess(history, trial, job.groups, labels), event.challenger)
        elif event.type is Type.RESUMED or (event.type is Type.PROMOTED and trial.phase in TRIED):
            assessment = assess(history, trial, job.groups, labels)
            checks.require_progress(trial, assessment, self.settings.job_id)
            checks.require_no_breach(trial, assessment)

    def _write(self, draw: Draw, actor: Actor, history: History, job: Job) -> Receipt:
        """Write what is drawn; again, after a random pause, while other desks fence the writer."""
        for attempt in range(ATTEMPTS - 1):
            with suppress(FencedError):
                return self._write_once(draw, actor, history, job)
            time.sleep(random.uniform(0.0, PAUSE_S * 2**attempt))
        return self._write_once(draw, actor, history, job)

    def _write_once(self, draw: Draw, actor: Actor, history: History, job: Job) -> Receipt:
        with self._turn:
            write = self._rollouts.open()
            history = self._rollouts.read(job.set_aside, history)
            drawn = draw(history, job)
            if isinstance(drawn, Receipt):  # the same request was written concurrently by another desk
                return drawn
            offsets = write(drawn, actor)
        line = drawing.apply_events(history.line, drawn)
        return drawing.receipt(line, drawn, tuple(offsets), repeated=False)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
