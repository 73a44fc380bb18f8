"""The classification of query failures as errors of the project: Spark wraps the cause in stack traces."""

import re

from feature_store.errors import FraudError
from feature_store.state.codec import StateDamagedError
from streaming_job.runtime.checkpoint_errors import RESTORE, AccessError, DamagedCheckpointError
from streaming_job.runtime.pauses import StoppedError
from streaming_job.transaction.writer import FencedError

_NAMED_ERROR = re.compile(r"(?:Caused by: )?([A-Za-z_][\w.$]*(?:Error|Exception)): (.+)")
_OURS = ("feature_store.", "models.", "streaming_job.")
_FULL_DISK = ("No space left on device", "Disk quota exceeded")
_CRASHED = "Python worker exited unexpectedly (crashed)"
_TWO_WRITERS = "[CONCURRENT_STREAM_LOG_UPDATE]"
_REMOTE = re.compile(r"org\.apache\.hadoop\.(fs\.s3a|fs\.azurebfs|hdfs)\.")
"""Packages of the clients of file systems behind a network."""
_AWAY = re.compile(
    r"org\.apache\.hadoop\.(fs\.s3a|net|security)\.|java\.net\.|java\.nio\.file\.AccessDeniedException"
)
"""Errors of such a file system that refuses access or does not answer; a missing file is none of them."""
_DAMAGED = ("CANNOT_LOAD_STATE_STORE", "ChecksumException", "Checksum error: ", "MISSING_STATE_DIRECTORY")


class JobFailedError(FraudError):
    """Spark's query ended for a reason that has no error of its own, such as a full disk.

    See the message, or the log above it.
    """


JVM_GONE = (
    "Spark's JVM is gone. If the log above has an OutOfMemoryError, raise FRAUD_DRIVER_MEMORY; otherwise the "
    "JVM was killed, perhaps because the machine ran out of memory: then lower FRAUD_DRIVER_MEMORY, or give "
    "the machine more. Start the job again; nothing is lost"
)


def classify(fault: Exception) -> FraudError:
    """Return an error that names the project's error in a worker, else a known cause, else the root cause."""
    text = str(fault)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [match.groups() for line in lines if (match := _NAMED_ERROR.fullmatch(line))]
    for name, message in errors:
        if name.endswith(f".{FencedError.__name__}"):
            return FencedError(message)
        if name.endswith(f".{StoppedError.__name__}"):
            return StoppedError(message)
        if name.endswith(f".{StateDamagedError.__name__}"):
            return DamagedCheckpointError(message)
        if name.startswith(_OURS):
            return JobFailedError(message)
    if _TWO_WRITERS in text:
        return FencedError(
            "another instance of the job has written to its checkpoint meanwhile; this instance stops"
        )
    if any(message in text for message in _FULL_DISK):
        return JobFailedError(
            "a disk is full: make room for the checkpoint, FRAUD_WORK_DIR and Spark's temporary files, then "
            "start the job again; nothing is lost"
        )
    if "java.lang.OutOfMemoryError" in text:
        return JobFailedError(
            "Spark's JVM has no memory left: give it more with FRAUD_DRIVER_MEMORY, then start the job "
            "again; nothing is lost"
        )
    if _CRASHED in text:
        return JobFailedError(
            "Python workers crash: there is no memory left, or no room under FRAUD_WORK_DIR, whose files are "
            "mapped; look at both, then start the job again; nothing is lost"
        )
    away = [error for error in errors if _AWAY.match(error[0])]
    if away and _REMOTE.search(text):
        return AccessError(
            f"the checkpoint's file system refuses access, or has not answered for minutes ({away[-1][0]}: "
            f"{away[-1][1]}); check it and the job's permissions, then start the job again; nothing is lost"
        )
    pythons = [error for error in errors if "." not in error[0]]
    name, message = (pythons or errors[-1:] or [(type(fault).__name__, lines[0] if lines else "")])[0]
    if any(message in text for message in _DAMAGED):
        return DamagedCheckpointError(f"the checkpoint is damaged ({name}: {message}); {RESTORE}")
    return JobFailedError(f"the query failed: {name}: {message}; see the log above")
