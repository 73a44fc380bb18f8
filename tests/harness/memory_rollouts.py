"""A rollout log in memory with one writer at a time, as with a broker; proposals and a model registry."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from models.policy import Policy
from models.registry import ModelRef
from models.rollouts import events
from models.rollouts.events import Event
from models.scoring import Estimator, Scorer
from service.rollouts.errors import DeskError, FencedError
from service.rollouts.history import History, Record
from service.rollouts.model_registry import ModelRegistry
from service.rollouts.requests import Actor, Draft, Proposal
from service.rollouts.topic import Write

T = TypeVar("T")
START = 1_763_870_000_000
ADA, BOB = Actor("ada", "operator", "127.0.0.1"), Actor("bob", "admin", "127.0.0.1")


def ref(version: int) -> ModelRef:
    """A registered model without files."""
    return ModelRef(
        "card-fraud", str(version), f"models:/card-fraud/{version}", f"{version:064x}", ("amount:1",)
    )


def proposal(key: str = "k1", *, rollout_id: str = "r2", version: int = 2, **changes: Any) -> Proposal:
    """A proposal of one challenger as a canary of 10 %."""
    draft = Draft("next", "canary", 1_000, f"card-fraud/{version}", Policy(0.5, 6))
    return Proposal((draft,), "a better one", key, rollout_id=rollout_id, **changes)


class KnownModels(ModelRegistry):
    """A registry of models 1 to 9, all valid."""

    def __init__(self) -> None:
        super().__init__("known")
        self.verified: list[str] = []
        self.features: tuple[str, ...] = ("amount:1",)
        """Features of every model."""
        self.scores: dict[str, Any] | None = None
        """Histogram of every model's scores in training; None: it has none."""
        self.label_delay_ms: int | None = None
        """Label delay of every model."""

    def find(self, model: str) -> ModelRef:
        """See ModelRegistry."""
        return replace(ref(int(model.rpartition("/")[2])), features=self.features)

    def verify(self, known: ModelRef) -> Scorer:
        """See ModelRegistry."""
        self.verified.append(known.version)
        classifier = Estimator(None, np.zeros(1))
        return Scorer(
            known.name,
            known.version,
            known.digest,
            known.features,
            classifier,
            label_delay_ms=self.label_delay_ms,
        )

    def training_scores(self, known: ModelRef) -> dict[str, Any] | None:
        """See ModelRegistry."""
        return self.scores

    def versions(self, name: str) -> list[tuple[ModelRef, dict[str, float]]]:
        """See ModelRegistry."""
        return [(ref(version), {"auc_roc": 0.9}) for version in range(9, 0, -1)]


class MemoryRollouts:
    """The log; each record is a minute after the one before it."""

    def __init__(self, *, champion: int | None = 1) -> None:
        self.records: list[Record] = []
        self.refusals: list[tuple[str, str, str, str]] = []
        """(action, target, actor, check) of each refused step."""
        self._intervene: Callable[[], object] = lambda: None
        self._writer, self._lock = 0, threading.Lock()
        if champion is not None:
            self.put(*events.installation(ref(champion), Policy(0.5, 6), f"r{champion}", "test", START))

    def put(self, *new: Event) -> list[int]:
        """Append records; returns their offsets."""
        offsets = []
        for event in new:
            # offsets have gaps: a transaction ends with a marker
            offset = 2 * len(self.records)
            self.records.append(Record(offset, START + 60_000 * len(self.records), event.to_json()))
            offsets.append(offset)
        return offsets

    def read(self, set_aside: Mapping[int, str], since: History) -> History:
        """See Rollouts."""
        return since.with_records(self.records, set_aside)

    def history(self) -> History:
        """The whole history."""
        return self.read({}, History())

    def open(self) -> Write:
        """See Rollouts."""
        commit = self._open()
        return lambda new, _actor: commit(lambda: self.put(*new))

    def note_refusal(self, action: str, target: str, actor: Actor, refusal: DeskError) -> None:
        """See Rollouts."""
        self.refusals.append((action, target, actor.name, refusal.check))

    def before_next_commit(self, intervene: Callable[[], object]) -> None:
        """Call a function once, when a writer is open and about to commit: it may open another writer."""
        self._intervene = intervene

    def _open(self) -> Callable[[Callable[[], T]], T]:
        """Fence the previous writer; return the function that commits, unless a newer writer was opened."""
        with self._lock:
            self._writer += 1
            mine = self._writer

        def commit(append: Callable[[], T]) -> T:
            intervene, self._intervene = self._intervene, lambda: None
            intervene()
            with self._lock:
                if self._writer != mine:
                    raise FencedError
                return append()

        return commit
