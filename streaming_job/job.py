"""The query, put together: sources -> source stage -> keyed stage -> sink."""

import logging
import threading
import time
from contextlib import suppress
from itertools import groupby
from operator import attrgetter

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from feature_store.errors import FraudError
from streaming_job.runtime import session
from streaming_job.runtime.wait_for_snapshot import wait_for_snapshot
from streaming_job.runtime.checkpoint import Checkpoint, CheckpointError
from streaming_job.runtime.failpoints import Step, reach
from streaming_job.runtime.failures import JVM_GONE, JobFailedError, named
from streaming_job.group.processor import OUTCOME_SCHEMA, KeyedStage
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.record import Batch
from streaming_job.runtime.session import Launch
from streaming_job.settings import JobSettings
from streaming_job.transaction.writer import TransactionalSink
from streaming_job.source import card_log

log = logging.getLogger(__name__)

STOP_POLL_S = 0.02


class StopRequested(Exception):  # noqa: N818  a signal, not an error
    """Raised in place of running a batch once a graceful stop has been asked for."""


class Job:
    """One run of the streaming job."""

    def __init__(self, settings: JobSettings, launch: Launch, stop: threading.Event) -> None:
        """Start the query.

        Args:
            settings: of the job; what they name is there, see `require_inputs`.
            launch: of Spark.
            stop: set it for a graceful stop: the batch that runs is finished, no further one begins.

        Raises:
            FraudError: something that the job needs is not there, or does not belong together.
        """
        self._settings = settings
        self._stop = stop
        self._failure: FraudError | None = None
        self._sink = TransactionalSink(settings)
        self._spark = launch.session()
        self._checkpoint = Checkpoint(self._spark, settings.checkpoint)
        last = self._last_batch()
        self._sink.require_owner(last)
        if last is None:
            wait_for_snapshot(settings, stop)
        self._sink.take_over()
        # an instance that ran until now may have written on meanwhile
        if (last := self._last_batch()) is not None:
            self._sink.is_written(last)
        self._query = self._start()

    def _last_batch(self) -> Batch | None:
        """The last batch that the checkpoint says was begun; None if it is empty.

        Raises:
            CheckpointError: it is damaged, or for another number of key groups.
        """
        last = self._checkpoint.last_batch()
        if last is not None and (groups := self._checkpoint.key_groups(last)) != self._settings.key_groups:
            raise CheckpointError(
                f"the checkpoint has {groups} key groups, the settings ask for {self._settings.key_groups}; "
                f"set FRAUD_KEY_GROUPS={groups}: the number is fixed by a job's first start"
            )
        return None if last is None else self._batch(last, 0)

    def _batch(self, batch_id: int, started_ms: int) -> Batch:
        query_id = str(self._checkpoint.query_id())
        return Batch(self._settings.job_id, query_id, batch_id, started_ms, self._checkpoint.ranges(batch_id))

    def _start(self) -> StreamingQuery:
        settings = self._settings
        stage = KeyedStage(
            settings.topics,
            settings.key_groups,
            settings.allowed_lateness_ms,
            settings.mlflow_tracking_uri,
            settings.work_dir,
            settings.job_id,
        )
        outcomes = (
            card_log.packets(self._spark, settings)
            .groupBy("key_group")
            .transformWithState(stage, OUTCOME_SCHEMA, outputMode="Update", timeMode="None")
        )
        return (
            outcomes.writeStream.queryName(settings.job_id)
            .foreachBatch(self._write)
            .outputMode("update")
            .option("checkpointLocation", settings.checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )

    def _write(self, outcomes: DataFrame, batch_id: int) -> None:
        """One batch: run it, then write what came of it in one transaction."""
        if self._stop.is_set():
            # Spark would log a stack trace for what is no failure
            self._spark.sparkContext.setLogLevel("OFF")
            raise StopRequested
        started = time.time()
        try:
            total = Outcome()
            # exactly one action: a second one would run the batch twice
            for _, rows in groupby(outcomes.collect(), key=attrgetter("key_group")):
                total.add(Outcome.unpack(bytes(row.outcome) for row in rows))
            ran = time.time()
            reach(Step.COLLECTED)
            batch = self._batch(batch_id, int(started * 1000))
            total.phases["run"] = 1000 * (ran - started)  # type: ignore[assignment]
            written = self._sink.write(batch, total)
        except FraudError as fault:
            self._failure = fault
            raise
        except Exception as fault:
            # the query's own exception would only quote the traceback
            self._failure = named(fault)
            raise
        log.info(
            "batch %d: %d transactions, %d alerts, %d dead letters, run %.0f ms, write %.0f ms%s",
            batch_id,
            total.counts["transactions"],
            len(total.alerts),
            len(total.dead_letters),
            1000 * (ran - started),
            1000 * (time.time() - ran),
            "" if written else " (had been written before)",
        )

    def run(self) -> None:
        """Run until a stop is asked for.

        Raises:
            FraudError: what ended the query.
        """
        try:
            while self._query.isActive:
                if self._stop.wait(0.2):
                    self._finish()
            self._query.awaitTermination()
        except StreamingQueryException as fault:
            if not self._stop.is_set() or StopRequested.__name__ not in str(fault):
                raise self._failure or named(fault) from fault
        except (Py4JError, OSError) as fault:
            if session.is_alive(self._spark):
                raise
            raise JobFailedError(JVM_GONE) from fault
        finally:
            with suppress(Py4JError, OSError):
                self._spark.stop()

    def _finish(self) -> None:
        while self._query.isActive:
            status = self._query.status
            if not status["isTriggerActive"] and not status["isDataAvailable"]:
                self._query.stop()
            time.sleep(STOP_POLL_S)
