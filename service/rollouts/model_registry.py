"""The model registry as the desk asks it: every refusal names its check."""

import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from models.errors import ModelError, ModelMissingError, ModelUnavailableError
from models.registry import ModelRef
from service.rollouts.errors import RefusedError, UnansweredError, UnknownError

NAMED = re.compile(r"(?P<name>[^/]+)/(?P<version>[1-9][0-9]*)")
KEPT_S = 10.0
"""How long a list of versions is answered from memory."""
_one_at_a_time = threading.Lock()
"""MLflow's tracking URI belongs to the process."""

Versions = list[tuple[ModelRef, dict[str, float]]]


@contextmanager
def refusing(check: str) -> Iterator[None]:
    """Turn errors of models into refusals that name the check; one that the error itself names goes first."""
    try:
        yield
    except ModelMissingError as fault:
        raise UnknownError(check, str(fault)) from fault
    except ModelUnavailableError as fault:
        raise UnansweredError(check, str(fault)) from fault
    except ModelError as fault:
        raise RefusedError(fault.check or check, str(fault)) from fault


class ModelRegistry:
    """MLflow's registry at one address."""

    def __init__(self, tracking_uri: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Ask nothing yet.

        Args:
            tracking_uri: of MLflow; empty where none is set.
            clock: seconds, ascending.
        """
        self._uri, self._clock = tracking_uri, clock
        self._known: dict[str, tuple[float, Versions]] = {}

    @property
    def is_set(self) -> bool:
        """Whether there is one to ask."""
        return bool(self._uri)

    def find(self, model: str) -> ModelRef:
        """The reference of NAME/VERSION.

        Raises:
            RefusedError: no such name, or registered by other means.
            UnknownError: no such version.
            UnansweredError: the registry does not answer, or none is set.
        """
        from models import registry

        named = NAMED.fullmatch(model)
        if named is None:
            raise RefusedError("model", f"{model!r} is no NAME/VERSION; see fraud models list")
        with self._asking("registry"):
            return registry.find(named["name"], named["version"], self._uri)

    def verify(self, ref: ModelRef) -> None:
        """See that a model's files load and can be trusted, and that it answers as when it was registered.

        Raises:
            RefusedError: names the check: files, trust, features, golden or answers.
            UnansweredError: the files cannot be had now.
        """
        from models import registry

        with self._asking("files"), tempfile.TemporaryDirectory() as scratch:
            registry.verify(ref, self._uri, Path(scratch))

    def versions(self, name: str) -> Versions:
        """Registered versions of a name with the metrics of their training, newest first.

        Raises:
            DeskError: the registry does not answer, or none is set.
        """
        from models import registry

        taken_at, found = self._known.get(name, (float("-inf"), []))
        if self._clock() - taken_at > KEPT_S:
            with self._asking("registry"):
                found = registry.versions(self._uri, name)
            self._known[name] = (self._clock(), found)
        return found

    def training_scores(self, ref: ModelRef) -> dict[str, Any] | None:
        """Histogram of the scores of a model in its training; None where none was registered.

        Raises:
            DeskError: the registry does not answer, or its tag is damaged.
        """
        from models import registry

        with self._asking("training_scores"):
            return registry.training_scores(ref, self._uri)

    def point(self, alias: str, ref: ModelRef) -> None:
        """Make an alias name a version.

        Raises:
            ModelError: the registry does not answer.
        """
        from models import registry

        with _one_at_a_time:
            registry.point(alias, ref, self._uri)

    @contextmanager
    def _asking(self, check: str) -> Iterator[None]:
        if not self._uri:
            raise UnansweredError("registry", "no model registry is set; set FRAUD_MLFLOW_TRACKING_URI")
        with _one_at_a_time, refusing(check):
            yield
