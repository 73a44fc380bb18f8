"""The desk's access to the model registry; every refusal names the check that failed."""

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
from models.scoring import Scorer
from service.rollouts.errors import RefusedError, UnansweredError, UnknownError

NAME_VERSION = re.compile(r"(?P<name>[^/]+)/(?P<version>[1-9][0-9]*)")
KEPT_S = 10.0
"""Time for which a list of versions is cached."""
MOST_NAMES = 64
"""Maximum number of names whose lists are cached; the oldest list is dropped first."""
_mlflow_lock = threading.Lock()
"""MLflow's tracking URI is global to the process, so calls are serialised."""

Versions = list[tuple[ModelRef, dict[str, float]]]


@contextmanager
def refusing(check: str) -> Iterator[None]:
    """Convert a ModelError into a DeskError with the given check.

    A RefusedError gets the ModelError's own check instead, if it has one.
    """
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
        """Create the object without connecting.

        Args:
            tracking_uri: address of MLflow; empty if none is set.
        """
        self._uri, self._clock = tracking_uri, clock
        self._versions: dict[str, tuple[float, Versions]] = {}

    @property
    def is_set(self) -> bool:
        """Whether a registry is configured."""
        return bool(self._uri)

    def find(self, model: str) -> ModelRef:
        """Return the reference of a registered model, given as NAME/VERSION.

        Raises:
            RefusedError: the name is malformed, or the version was not registered by this project.
            UnansweredError: the registry does not answer, or none is set.
        """
        from models import registry

        match = NAME_VERSION.fullmatch(model)
        if match is None:
            raise RefusedError("model", f"{model!r} is no NAME/VERSION; see fraud models list")
        with self._asking("registry"):
            return registry.find(match["name"], match["version"], self._uri)

    def verify(self, ref: ModelRef) -> Scorer:
        """Load a model, and check that it can be trusted and scores as it did when it was registered.

        Raises:
            RefusedError: a check failed: `files`, `trust`, `features`, `golden` or `answers`.
            UnknownError: the registry has no such version.
            UnansweredError: the files cannot be fetched now, or no registry is set.
        """
        from models import loading

        with self._asking("files"), tempfile.TemporaryDirectory() as scratch:
            return loading.verify(ref, self._uri, Path(scratch))

    def versions(self, name: str) -> Versions:
        """List the registered versions of a name with the metrics of their training, newest first."""
        from models import registry

        cached_at, versions = self._versions.get(name, (float("-inf"), []))
        if self._clock() - cached_at > KEPT_S:
            with self._asking("registry"):
                versions = registry.versions(self._uri, name)
                self._versions.pop(name, None)
                self._versions[name] = (self._clock(), versions)
                if len(self._versions) > MOST_NAMES:  # callers choose the names
                    del self._versions[next(iter(self._versions))]
        return versions

    def training_scores(self, ref: ModelRef) -> dict[str, Any] | None:
        """Return the histogram of a model's scores in training; None if none was registered."""
        from models import registry

        with self._asking("training_scores"):
            return registry.training_scores(ref, self._uri)

    def point(self, alias: str, ref: ModelRef) -> None:
        """Point an alias to a version."""
        from models import registry

        with _mlflow_lock:
            registry.point(alias, ref, self._uri)

    @contextmanager
    def _asking(self, check: str) -> Iterator[None]:
        if not self._uri:
            raise UnansweredError("registry", "no model registry is set; set FRAUD_MLFLOW_TRACKING_URI")
        with _mlflow_lock, refusing(check):
            yield
