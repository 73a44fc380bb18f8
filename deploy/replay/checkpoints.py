"""The checkpoints of jobs that do not run: the query of each, and its removal."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.local.files import replace_json
from streaming_job.runtime.checkpoint_errors import AccessError
from streaming_job.settings import JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_job.runtime.checkpoint import Checkpoint


@contextmanager
def opened(settings: JobSettings) -> Iterator["Checkpoints"]:
    """Yield the checkpoints in the file system of a job's checkpoint.

    Raises:
        SettingsError: Spark does not start, or cannot use the checkpoint's location.
    """
    with ExitStack() as resources:
        yield Checkpoints(settings.model_copy(update={"master": "local[1]"}), resources)


class Checkpoints:
    """Checkpoints on this machine or at URIs; the first one at a URI starts Spark, which takes seconds."""

    def __init__(self, settings: JobSettings, resources: ExitStack) -> None:
        self._settings, self._resources = settings, resources

    def query_id(self, location: str) -> str | None:
        """Return the id of a checkpoint's query; None if there is no checkpoint.

        Raises:
            CheckpointError: the file with the id is damaged or cannot be read.
            AccessError: it cannot be opened.
        """
        return self._at(location).query_id()

    def begin(self, location: str) -> str:
        """Return the id of a checkpoint's query; before its first start, choose it.

        Raises:
            CheckpointError, AccessError: as `query_id`, or it cannot be written.
        """
        return self._at(location).begin()

    def remove(self, location: str) -> bool:
        """Remove a checkpoint; return whether there was one.

        Raises:
            AccessError: the file system refuses it.
        """
        return self._at(location).remove()

    def _at(self, location: str) -> "_LocalCheckpoint | Checkpoint":
        if "://" not in location:
            return _LocalCheckpoint(Path(location))
        from streaming_job.runtime.checkpoint import Checkpoint

        return Checkpoint(self._spark, location)

    @cached_property
    def _spark(self) -> "SparkSession":
        from deploy.local import jars
        from streaming_job.runtime import session

        launching = session.launching(self._settings, jars.of_job(self._settings))
        return self._resources.enter_context(launching).session()


class _LocalCheckpoint:
    """A checkpoint on this machine, for which no JVM has to start."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def query_id(self) -> str | None:
        from streaming_job.runtime.checkpoint import METADATA, query_in

        try:
            return query_in((self._path / METADATA).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise AccessError(f"the checkpoint {self._path} cannot be read: {fault}") from fault

    def begin(self) -> str:
        from streaming_job.runtime.checkpoint import METADATA

        if (known := self.query_id()) is not None:
            return known
        chosen = str(uuid.uuid4())
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            replace_json(self._path / METADATA, {"id": chosen})
        except OSError as fault:
            raise AccessError(f"the checkpoint {self._path} cannot be written: {fault}") from fault
        return chosen

    def remove(self) -> bool:
        try:
            shutil.rmtree(self._path)
        except FileNotFoundError:
            return False
        except OSError as fault:
            raise AccessError(f"the checkpoint {self._path} cannot be removed: {fault}") from fault
        return True
