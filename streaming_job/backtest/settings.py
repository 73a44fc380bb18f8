"""The part of the job's settings that a backtest needs, and their comparison with those of the job."""

from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson
from pydantic_settings import SettingsConfigDict

from feature_store.catalogue import HOUR_MS
from streaming_job.backtest.log import ArchiveLog, BacktestError, Decided
from streaming_job.backtest.run import Job
from streaming_job.group.rules import limits_of, merchants_of
from streaming_job.progress.choices import choices
from streaming_job.progress.last_record import positions, set_aside
from streaming_job.progress.reader import of_newest_query
from streaming_job.settings import JobSettings


class BacktestSettings(JobSettings):
    """The settings from the environment (`FRAUD_...`, as for the job), of which servers are not used."""

    model_config = SettingsConfigDict(env_prefix="FRAUD_", env_nested_delimiter="__", extra="ignore")

    bootstrap_servers: str = ""
    checkpoint: str = ""
    mlflow_tracking_uri: str = ""
    """Needed for models without a local copy below `work_dir`."""
    work_dir: Path

    def job(self) -> Job:
        """Return what decisions of the job depend on."""
        return Job(
            self.topics, self.partitioner, limits_of(self), self.mlflow_tracking_uri,
            self.work_dir / "models", merchants_of(self), self.key_groups,
        )  # fmt: skip


def decided_by_the_job(log: ArchiveLog, settings: JobSettings) -> Decided:
    """Return what the job's newest archived progress tells; its settings have to be those here.

    Progress counts only if all that was written with it is archived, too.

    Raises:
        BacktestError: they differ, or no progress of the job is archived.
    """
    topic, newest = settings.topics.job_progress, dict[int, dict[str, Any]]()
    settled = log.settled()
    for partition, extent in log.extents(topic).items():
        end = None if settled is None else settled.get(partition, 0)
        last = extent.most_ms if end is None else log.arrival(topic, partition, end) or extent.most_ms
        for records in log.records(topic, partition, last - HOUR_MS):
            columns = records.keys.to_pylist(), records.values.to_pylist(), records.offsets.tolist()
            for key, value, offset in zip(*columns, strict=True):
                if key == settings.job_id.encode() and (end is None or offset < end):
                    record = orjson.loads(value)
                    before = newest.get(record["key_group"], record)
                    newest[record["key_group"]] = max(before, record, key=itemgetter("commit_id"))
    if not newest:
        raise BacktestError(
            f"the archive has no progress of the job {settings.job_id} in its last hour, up to which it has "
            "all topics; set FRAUD_JOB_ID, or let `fraud archive run` catch up"
        )
    newest = of_newest_query(newest)
    for choice in choices(newest, settings):
        # without merchant facts, no decision depends on the number of groups
        if choice.differs and (settings.merchant_facts or choice.name != "FRAUD_KEY_GROUPS"):
            raise BacktestError(
                f"{choice.name} is {choice.here} here, but the job decided with {choice.running}; set it so"
            )
    decided = {tp: end for record in newest.values() for tp, end in positions(record).items()}
    refused = {offset: reason for record in newest.values() for offset, reason in set_aside(record).items()}
    takeover = newest[min(newest)].get("takeover", {})
    former = takeover.get("drained", {}).get("layout", {}).get("topic")
    if former == settings.topics.transactions:
        return Decided(decided, takeover["at"], refused)
    return Decided(decided, 0 if takeover.get("moved") else None, refused)
