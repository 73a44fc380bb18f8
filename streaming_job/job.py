"""The streaming query: each micro-batch is an epoch, in which one task for each key group follows the log."""

import json
import logging
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, GroupedData, functions
from pyspark.sql.streaming.query import StreamingQuery

from feature_store.errors import FraudError
from streaming_job.group.placement import grouping_values
from streaming_job.group.processor import SUMMARY_SCHEMA, TAKES_OVER, GroupProcessor
from streaming_job.log.losses import NOTHING_LOST, Losses
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import text_of
from streaming_job.runtime import drain, lost_log, session
from streaming_job.runtime.checkpoint import Checkpoint, FixedSettings
from streaming_job.runtime.checkpoint_errors import CheckpointError, DamagedCheckpointError
from streaming_job.runtime.epochs import EpochServer
from streaming_job.runtime.failpoints import Failpoint, reach
from streaming_job.runtime.failures import JVM_GONE, JobFailedError, classify
from streaming_job.runtime.partitioning import (
    PartitionWatch,
    count_partitions,
    require_fixed,
    require_partitioner,
)
from streaming_job.runtime.pauses import StoppedError
from streaming_job.runtime.preconditions import StartUpError
from streaming_job.runtime.session import Launch
from streaming_job.runtime.slots import Slots
from streaming_job.runtime.wait_for_snapshot import wait_for_snapshot
from streaming_job.settings import JobSettings
from streaming_job.takeover.handover import Handover, least
from streaming_job.takeover.inheritance import Former
from streaming_job.takeover.initial_state import former, initial_state

log = logging.getLogger(__name__)

STOP_POLL_S = 0.02
STOP_S = 20.0
"""Time that the running epoch has to end after a stop request; then its tasks are killed, as they wait for
something that does not look at the request. Supervisors kill after 30 seconds, usually."""
SHORT_S = 0.15
"""Length of an epoch while there are fewer task slots than groups: a group that is not open yet waits for the
end of the epoch."""


class StopRequested(Exception):  # noqa: N818  a signal, not an error
    """A graceful stop was requested, so the next epoch does not run."""


class Job:
    """One run of the streaming job."""

    def __init__(self, settings: JobSettings, launch: Launch, stop: threading.Event) -> None:
        """Start Spark, and prepare the query.

        Args:
            settings: settings of the job, checked by `preconditions.require_inputs` before.
            stop: set it for a graceful stop: the running epoch ends at once, and the groups with it. Between
                two epochs, one more runs for that.

        Raises:
            FraudError: something that the job needs is missing or inconsistent.
        """
        self._settings, self._stop = settings, stop
        self._failure: FraudError | None = None
        self._launch, self._spark = launch, launch.session()
        self._checkpoint = Checkpoint(self._spark, settings.checkpoint)
        self._key_groups = self._fixed()
        self._slots = Slots(self._spark, settings.key_groups)
        self._instance = secrets.token_hex(8)
        self._handover = self._prepared_handover()
        """The takeover that is still to be made."""
        if self._handover is not None and settings.drain:  # its state might pass the ends before it is made
            raise StartUpError(
                "the output is still to be taken over, so this job cannot be drained yet: remove "
                "FRAUD_DRAIN, or first take over without it"
            )
        self._until = drain.ends(settings, self._key_groups.partitions) if settings.drain else None
        """Offsets of all inputs at which a draining job ends."""
        self._positions: dict[int, dict[str, int]] = {}
        """P of each key group by "topic-partition" after the last epoch, while a takeover is to be made."""
        self._speed = 0.0
        """Offsets per second by which P has advanced in the last epoch."""
        self._is_short = True
        """Whether the running epoch is a short one."""
        self._is_cut = False
        """Whether the last epoch was ended by force, or by a task that gave up waiting."""
        self._ended = 0
        """Number of epochs that have ended in this run."""
        self._idle_since = time.monotonic()
        self._partitions = PartitionWatch(settings, self._key_groups.partitions)
        self._epochs = EpochServer(
            session.driver_host(self._spark),
            settings.epoch_port,
            self._must_end,
            settings.key_groups,
            self._spark.sparkContext.cancelAllJobs,
            stop.is_set,
        )

    def _fixed(self) -> KeyGroups:
        """Check the settings against those fixed by the first start, or fix them now."""
        settings, checkpoint = self._settings, self._checkpoint
        partitions = count_partitions(settings)
        fixed = checkpoint.fixed()
        # before the first epoch nothing depends on them, and a later check may have refused that start
        if fixed is None or not checkpoint.epochs("offsets"):
            require_partitioner(settings, partitions)
            wait_for_snapshot(settings, self._stop)
            layout = settings.layout(partitions)
            fixed = FixedSettings(
                settings.job_id, layout, settings.key_groups, settings.merchant_delay_ms,
                (settings.topics.model_rollouts,),
            )  # fmt: skip
        else:
            require_fixed(fixed, settings, partitions)
        if not checkpoint.epochs("commits"):  # the state still begins with the log, which may have lost more
            losses, rollouts = self._origin()
            fixed = replace(fixed, losses=losses, rollout_topics=rollouts)
            if not self._stop.is_set():  # else nothing is fixed, and the next start waits again
                checkpoint.fix(fixed)
        self._losses, self._rollout_topics = fixed.losses, fixed.rollout_topics
        return KeyGroups(settings.partitioner, fixed.layout.partitions, settings.key_groups)

    def _origin(self) -> tuple[Losses, tuple[str, ...]]:
        """Return what the log lacks for the state with which this job begins, and its `rollout_topics`.

        An inherited state keeps its own.
        """
        own = (self._settings.topics.model_rollouts,)
        if place := self._settings.predecessor_checkpoint:
            before = Checkpoint(self._spark, place).fixed()
            if before is None:
                return NOTHING_LOST, own
            known = before.rollout_topics
            return before.losses, known if known[-1:] == own else known + own
        return lost_log.find(self._settings), own

    def _prepared_handover(self) -> Handover | None:
        if not self._settings.predecessor:
            return None
        query_id = self._checkpoint.begin()
        handover = Handover(
            self._settings, self._key_groups, query_id, self._instance, self._losses, self._rollout_topics
        )
        if not handover.is_due():
            log.info("the output is this job's already; FRAUD_PREDECESSOR may be removed")
            return None
        log.info("deciding in silence, up to the output of query %s", self._settings.predecessor)
        return handover

    def _take_over(self) -> None:
        """Take the predecessor's output over, once the state has come near its end."""
        handover = self._handover
        if handover is not None and handover.is_near(self._positions, self._speed):
            handover.run()
            self._handover = None
        takes_over = "true" if self._handover is not None else None
        self._spark.sparkContext.setLocalProperty(TAKES_OVER, takes_over)  # type: ignore[arg-type]

    def _start(self) -> StreamingQuery:
        settings, groups = self._settings, self._settings.key_groups
        values = ", ".join(map(str, grouping_values(groups)))
        control = (
            self._spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", groups)
            .option("numPartitions", 1)
            .load()
            .selectExpr(f"element_at(array({values}), cast(value % {groups} as int) + 1) as key_group")
        )
        inherited, predecessor = self._inherited()
        processor = GroupProcessor(
            settings, self._key_groups, self._epochs.address, self._instance, predecessor, self._until,
            self._losses, self._rollout_topics,
        )  # fmt: skip
        totals = [
            functions.sum(name).alias(name) for name in ("transactions", "alerts", "dead_letters", "commits")
        ]
        return (
            control.groupBy("key_group")
            .transformWithState(processor, SUMMARY_SCHEMA, "Update", "None", inherited)
            .observe("epoch", *totals)
            .writeStream.queryName(settings.job_id)
            .foreachBatch(self._run_epoch)
            .outputMode("update")
            .option("checkpointLocation", settings.checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )

    def _inherited(self) -> tuple[GroupedData | None, Former | None]:
        """Return the predecessor's state for a first epoch, and the predecessor; None, None without."""
        location = self._settings.predecessor_checkpoint
        if not location or self._checkpoint.epochs("commits"):
            return None, None
        checkpoint = Checkpoint(self._spark, location)
        layout = self._settings.layout(self._key_groups.partitions)
        predecessor = former(checkpoint, self._settings, layout)
        pieces = initial_state(
            self._spark, checkpoint, location, predecessor, layout, self._settings.key_groups
        )
        return pieces.groupBy("key_group"), predecessor

    def _run_epoch(self, summaries: DataFrame, epoch: int) -> None:
        """Run one epoch of all groups."""
        if self._stop.is_set() and (self._epochs.ended_for_good or not self._ended):
            # Spark would log a stack trace although this is no failure
            self._spark.sparkContext.setLogLevel("OFF")
            raise StopRequested
        try:
            self._checkpoint.require_whole()
            self._partitions.require_same()
            self._take_over()
            begun = time.monotonic()
            self._epochs.begin(epoch, self._length())
            # exactly one action: a second one would run the epoch twice
            rows = summaries.collect()
            ended = time.monotonic()
            reach(Failpoint.EPOCH_ENDED)
        except FraudError as fault:
            self._failure = fault
            raise
        except Exception as fault:
            # the query's own exception would only quote the traceback; that of a job that was cancelled after
            # a task's verdict has no cause
            verdict = self._epochs.verdict
            self._failure = self._cause(fault) if verdict is None else classify(JobFailedError(verdict))
            raise
        self._ended += 1
        if self._handover is not None:
            positions = {row["key_group"]: json.loads(row["positions"]) for row in rows}
            advance = sum(least(positions).values()) - sum(least(self._positions).values())
            self._positions, self._speed = positions, advance / (ended - begun)
        elif self._until is not None and drain.is_over(self._until, [row["positions"] for row in rows]):
            log.info("drained: all is decided up to %s", text_of(self._until))
            self._stop.set()
        counts = {name: sum(row[name] for row in rows) for name in ("transactions", "alerts", "dead_letters")}
        log.info(
            "epoch %d: %d transactions, %d alerts, %d dead letters in %.1f s, %.0f ms after the previous one",
            epoch, *counts.values(), ended - begun, 1000 * (begun - self._idle_since),
        )  # fmt: skip
        self._idle_since = ended

    def _cause(self, fault: Exception) -> FraudError:
        """Return the error of a failed query; a checkpoint that was moved away is not reported as damaged."""
        error = classify(fault)
        if isinstance(error, DamagedCheckpointError):
            try:
                self._checkpoint.require_whole()
            except CheckpointError as moved:
                return moved
        return error

    def _length(self) -> float:
        self._is_short = self._slots.are_short()
        return min(SHORT_S, self._settings.epoch_s) if self._is_short else self._settings.epoch_s

    def _must_end(self) -> bool:
        """Return whether the running epoch has to end early."""
        return not self._is_short and self._slots.are_short()

    def run(self) -> None:
        """Run until a stop is requested.

        If the last files of the checkpoint are damaged, as after a power failure, the job goes back to a
        complete epoch, and decides the log again from there, in silence up to Q.

        Raises:
            FraudError: the cause for which the query ended.
        """
        back = 0
        try:
            if self._stop.is_set():
                return
            if (epoch := self._checkpoint.mend()) is not None:
                log.warning("the checkpoint's last epochs are incomplete; going back to epoch %d", epoch)
            with self._partitions:
                while True:
                    query = self._start()
                    try:
                        self._follow(query)
                        return
                    except DamagedCheckpointError as fault:
                        if self._ended or not self._go_back(back, fault):
                            raise
                        self._failure = None
                        back = 2 * back or 1
        finally:
            self._epochs.close()
            with suppress(Py4JError, OSError):
                self._spark.stop()

    def _go_back(self, epochs: int, fault: FraudError) -> bool:
        """Drop the last `epochs` ended epochs and any begun after them.

        Returns:
            False, with nothing dropped, if no ended epoch would be left.
        """
        ended = self._checkpoint.epochs("commits")
        if epochs >= len(ended):
            return False
        target = ended[-1 - epochs]
        log.warning("%s; going back to epoch %d and deciding the log again from there", fault, target)
        self._checkpoint.drop_after(target)
        return True

    def _follow(self, query: StreamingQuery) -> None:
        try:
            while query.isActive:
                # called for its log messages: slots may become too few while the epoch waits for one
                self._slots.are_short()
                if self._stop.wait(0.2):
                    self._finish(query)
            query.awaitTermination()
        except StreamingQueryException as fault:
            self._is_cut = self._is_cut or isinstance(self._failure, StoppedError)
            if not self._is_cut and not (self._stop.is_set() and StopRequested.__name__ in str(fault)):
                raise self._failure or self._cause(fault) from fault
        except (Py4JError, OSError) as fault:
            if self._launch.is_alive():
                raise
            raise JobFailedError(JVM_GONE) from fault
        if self._is_cut:
            log.warning(
                "stopped while tasks were waiting, so the last epoch is not saved: the next start decides it "
                "again, in silence"
            )

    def _finish(self, query: StreamingQuery) -> None:
        deadline = time.monotonic() + STOP_S
        while query.isActive:
            status = query.status
            is_idle = not status["isTriggerActive"] and not status["isDataAvailable"]
            if is_idle or time.monotonic() > deadline:
                self._is_cut = not is_idle
                query.stop()
            time.sleep(STOP_POLL_S)
