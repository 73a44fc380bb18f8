"""The classification of Spark's errors, and the message for the operator."""

import pytest

from streaming_job.runtime.checkpoint_errors import AccessError, DamagedCheckpointError
from streaming_job.runtime.failures import JobFailedError, classify
from streaming_job.transaction.writer import FencedError

pytestmark = pytest.mark.unit

STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
MISSING = "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query"
CRASHED = "Python worker exited unexpectedly (crashed). Consider setting this and that"
TRACE = "\tat org.apache.spark.Some.method(Some.scala:1)\n"


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            f"{STREAM}x\nfeature_store.state.codec.StateDamagedError: piece s1 is cut short\n",
            DamagedCheckpointError,
            "piece s1",
        ),
        (
            f"{STREAM}x\n{TRACE}Caused by: java.io.IOException: No space left on device",
            JobFailedError,
            "a disk is",
        ),
        (
            f"{STREAM}x\nCaused by: java.lang.OutOfMemoryError: Java heap space",
            JobFailedError,
            "Spark's JVM has no memory left",
        ),
        (
            f"{STREAM}org.apache.spark.SparkException: {CRASHED}\n{TRACE}",
            JobFailedError,
            "Python workers crash",
        ),
        (f"{STREAM}{MISSING}\n{TRACE}", DamagedCheckpointError, "the checkpoint is damaged"),
        (
            f"x\nCaused by: org.apache.hadoop.fs.ChecksumException: Checksum error: /c/4.changelog\n{TRACE}",
            DamagedCheckpointError,
            "the checkpoint is damaged",
        ),
        (
            "x\nKeyError: 'rows'\njava.lang.Error: y",
            JobFailedError,
            "the query failed: KeyError: 'rows'; see the log",
        ),
        (
            f"{STREAM}x\nstreaming_job.transaction.writer.FencedError: another instance of job j\n{TRACE}",
            FencedError,
            "another instance",
        ),
        (
            f"{STREAM}[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs "
            f"detected for 17.\n{TRACE}",
            FencedError,
            "another instance of the job has written to its checkpoint",
        ),
        (
            f"{STREAM}[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred.\n{TRACE}"
            "\tat org.apache.hadoop.fs.s3a.Invoker.once(Invoker.java:1)\n"
            "Caused by: java.net.SocketException: getFileStatus on s3a://b/state: Connection reset\n",
            AccessError,
            "the checkpoint's file system refuses access, or has not answered",
        ),
        (
            f"{STREAM}[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred.\n{TRACE}"
            "Caused by: java.net.ConnectException: Call From a to b:8020 failed: Connection refused\n"
            "\tat org.apache.hadoop.hdfs.DFSClient.open(DFSClient.java:1)\n",
            AccessError,
            "the checkpoint's file system refuses access, or has not answered",
        ),
        (
            f"{STREAM}[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred.\n{TRACE}"
            "\tat org.apache.hadoop.fs.azurebfs.services.AbfsClient.getPathStatus(AbfsClient.java:1)\n"
            "Caused by: java.net.UnknownHostException: no-such-account\n",
            AccessError,
            "the checkpoint's file system refuses access, or has not answered",
        ),
        (
            f"{STREAM}[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred.\n{TRACE}"
            "Caused by: org.apache.hadoop.ipc.RemoteException(java.io.FileNotFoundException): /4.changelog\n"
            "\tat org.apache.hadoop.hdfs.DFSClient.open(DFSClient.java:1)\n",
            DamagedCheckpointError,
            "the checkpoint is damaged",
        ),
        (
            f"{STREAM}[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred.\n{TRACE}"
            "\tat org.apache.hadoop.fs.s3a.Invoker.once(Invoker.java:1)\n"
            "Caused by: java.io.FileNotFoundException: No such file or directory: s3a://b/4.changelog\n"
            "Caused by: software.amazon.awssdk.services.s3.model.NoSuchKeyException: no such key\n",
            DamagedCheckpointError,
            "the checkpoint is damaged",
        ),
        ("", JobFailedError, "the query failed: Exception"),
    ],
)
def test_cause_is_named_in_one_line(text: str, kind: type[Exception], words: str) -> None:
    error = classify(Exception(text))
    assert type(error) is kind
    assert str(error).startswith(words)
    assert "\n" not in str(error)
