"""What the query reads: two Kafka sources, transactions first, and the source stage on top of both."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the field's usual name

from streaming_job.decode.transactions import TimeLimits
from streaming_job.java_client import java_settings
from streaming_job.settings import JobSettings
from streaming_job.source_stage import SourceStage


def _read(spark: SparkSession, settings: JobSettings, topics: tuple[str, ...], **options: str) -> DataFrame:
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
        # Spark looks positions up on the connection on which its consumer waits for data: the default of
        # 500 ms puts half-second spikes into small batches
        .option("kafka.fetch.max.wait.ms", "5")
        # large answers for backlogs: every poll costs two look-ups of positions
        .option("kafka.max.poll.records", "50000")
        .option("kafka.max.partition.fetch.bytes", str(16 << 20))
        .option("kafka.fetch.max.bytes", str(64 << 20))
    )
    for name, value in java_settings(settings.kafka).items():
        reader = reader.option(f"kafka.{name}", value)
    return reader.options(**options).load()


def packets(spark: SparkSession, settings: JobSettings) -> DataFrame:
    """A stream of (key_group int, packet binary).

    Transactions come first in the plan: Spark fixes the end offsets of the sources in that order, so that a
    batch reads every table at least as far as it stood when the batch's last transaction had arrived. Two
    sources, not one a table: with more than four Spark forgets the order, and each costs time in every batch.
    """
    transactions = _read(
        spark,
        settings,
        (settings.topics.transactions,),
        maxOffsetsPerTrigger=str(settings.max_records_per_batch),
    ).withColumn("topic", F.lit(None).cast("string"))
    tables = _read(spark, settings, settings.topics.tables)
    columns = ("topic", "partition", "offset", "timestamp", "key", "value")
    stage = SourceStage(
        settings.topics,
        settings.key_groups,
        TimeLimits(settings.allowed_lateness_ms, settings.allowed_skew_ms),
    )
    both = transactions.select(*columns).unionAll(tables.select(*columns))
    return both.mapInArrow(stage, "key_group int, packet binary")
