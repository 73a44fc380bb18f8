"""The input topics as a streaming data source of Spark's, which yields packets.

Ends are fixed on the driver, in a Python process that Spark keeps for it; ranges are read and decoded in the
workers. The driver's side imports no kernels.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from streaming_job.contracts.topics import Topics
from streaming_job.settings import JobSettings
from streaming_job.source.ends import LogEnds, Offsets, limited, require_no_loss

if TYPE_CHECKING:
    import pyarrow as pa

KAFKA = "kafka."
"""Before the names of client settings, as Spark's options."""


@dataclass
class Slice(InputPartition):
    """A range of one partition of a topic."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Reading:
    """What both sides have to know; picklable."""

    client: tuple[tuple[str, str], ...] = field(repr=False)
    """Settings of the Kafka client."""
    topics: Topics
    key_groups: int
    max_records_per_batch: int
    lateness_ms: int
    skew_ms: int


class CardLog(DataSource):
    """Transactions and tables."""

    @classmethod
    def name(cls) -> str:
        """As Spark's `format`."""
        return "card-log"

    def schema(self) -> str:
        """Rows: packets and where they belong."""
        return "key_group int, packet binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader with this source's options."""
        client = {
            name.removeprefix(KAFKA): value for name, value in self.options.items() if name.startswith(KAFKA)
        }
        numbers = json.loads(self.options["numbers"])
        topics = Topics(**json.loads(self.options["topics"]))
        return CardLogReader(Reading(client=tuple(sorted(client.items())), topics=topics, **numbers))


class CardLogReader(DataSourceStreamReader):
    """Plans on the driver, reads in workers."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._log_ends: LogEnds | None = None
        self._first: Offsets | None = None

    @property
    def _ends(self) -> LogEnds:
        if self._log_ends is None:
            topics = self._reading.topics
            self._log_ends = LogEnds(dict(self._reading.client), topics.transactions, topics.tables)
        return self._log_ends

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Where an empty checkpoint begins: with the oldest records there are."""
        self._first = self._ends.first()
        return self._first

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Where the next batch ends; `start` if there is nothing new, or nobody to ask.

        The first batch of all is empty: Spark writes down where batches end, not where they begin, and by
        the time that it is run again retention may have moved the beginning.
        """
        if start == self._first:
            self._first = None
            return start
        ends = self._ends.last()
        if ends is None:
            return start
        require_no_loss(start, ends)
        name, most = self._reading.topics.transactions, self._reading.max_records_per_batch
        return {**ends, name: limited(start.get(name, {}), ends[name], most)}

    def partitions(self, start: Offsets, end: Offsets) -> list[Slice]:
        """One slice for each partition with something new."""
        return [
            Slice(topic, int(partition), start.get(topic, {}).get(partition, 0), last)
            for topic, ends in end.items()
            for partition, last in ends.items()
            if last > start.get(topic, {}).get(partition, 0)
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The packets of a slice."""
        from streaming_job.decode.transactions import TimeLimits
        from streaming_job.source.ranges import reader
        from streaming_job.source.stage import SourceStage

        assert isinstance(partition, Slice)
        known = self._reading
        stage = SourceStage(known.topics, known.key_groups, TimeLimits(known.lateness_ms, known.skew_ms))
        records = reader(known.client).read(
            partition.topic, partition.partition, partition.start, partition.end
        )
        return stage(records)


def packets(spark: SparkSession, settings: JobSettings) -> DataFrame:
    """A stream of (key_group int, packet binary)."""
    spark.dataSource.register(CardLog)
    client: Mapping[str, str] = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    numbers = {
        "key_groups": settings.key_groups,
        "max_records_per_batch": settings.max_records_per_batch,
        "lateness_ms": settings.allowed_lateness_ms,
        "skew_ms": settings.allowed_skew_ms,
    }
    return (
        spark.readStream.format(CardLog.name())
        .option("topics", settings.topics.model_dump_json())
        .option("numbers", json.dumps(numbers))
        .options(**{f"{KAFKA}{name}": value for name, value in client.items()})
        .load()
    )
