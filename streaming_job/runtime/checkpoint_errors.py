"""The errors of a checkpoint; without Spark, so that sidecar and backtest may import what raises them."""

from feature_store.errors import FraudError

RESTORE = "restore a copy of the checkpoint, or have an empty one take over (docs/operations.md)"


class CheckpointError(FraudError):
    """The checkpoint does not fit the job's output, or part of it is gone.

    It was deleted or moved while the job ran, or its `job.json` or `metadata` is damaged; or the state
    includes records or Kafka transactions that committed offsets and progress records lack, because one of
    them is lost; or a setting that decides was changed although records have to be decided again ([decision
    172](decisions/172-settings-that-decide-change-at-a-clean-stop.md)).

    Restore the checkpoint, or the topics and the consumer group that belong to it; an older copy of the
    checkpoint is fine, and where progress records remain, an empty one can take over
    ([operations](operations.md#changing-a-running-job)). For a changed setting: start once with the former
    value, which the message names, stop the job with SIGTERM when it has caught up, then change the setting.
    """


class DamagedCheckpointError(CheckpointError):
    """Files of the checkpoint are damaged or missing, and going back by some epochs did not help.

    Restore a copy of the checkpoint, which may be old, as long as the log still has all records from the
    copy's positions on; or let an empty one take over ([operations](operations.md#changing-a-running-job)).
    """


class AccessError(FraudError):
    """The checkpoint's file system refuses access, or does not answer; no file is dropped as damaged.

    Correct the permissions or the file system, then start the job again.
    """
