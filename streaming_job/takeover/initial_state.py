"""The pieces of a predecessor's checkpoint, as Spark's initial state of a successor's query."""

from pyspark.sql import DataFrame, SparkSession, functions

from streaming_job.group.placement import grouping_values
from streaming_job.group.processor import PIECES
from streaming_job.log.partitioner import KeyGroups
from streaming_job.runtime.checkpoint import Checkpoint
from streaming_job.runtime.preconditions import StartUpError
from streaming_job.settings import JobSettings
from streaming_job.takeover.inheritance import receivers


def predecessor_groups(checkpoint: Checkpoint, settings: JobSettings, key_groups: KeyGroups) -> int:
    """Return the number of key groups of a predecessor's checkpoint.

    Raises:
        StartUpError: there is no such checkpoint, or its state cannot be that of the successor.
        CheckpointError: its `job.json` is damaged.
    """
    fixed, where = checkpoint.fixed(), settings.predecessor_checkpoint
    if fixed is None or not checkpoint.epochs("commits"):
        raise StartUpError(
            f"FRAUD_PREDECESSOR_CHECKPOINT={where} has no saved state; correct the setting, or remove it to "
            "read the log from its beginning"
        )
    kept = fixed.job_id, fixed.partitioner, fixed.partitions, fixed.label_delay_ms
    wanted = settings.job_id, settings.partitioner.value, key_groups.partitions, settings.merchant_delay_ms
    if kept != wanted:
        raise StartUpError(
            f"the checkpoint {where} is of job {kept[0]}, partitioner {kept[1]}, {kept[2]} partitions and "
            f"label delay {kept[3]}, this job has {wanted[0]}, {wanted[1]}, {wanted[2]} and {wanted[3]}; its "
            "state cannot be used: remove FRAUD_PREDECESSOR_CHECKPOINT to read the log from its beginning"
        )
    return fixed.key_groups


def initial_state(
    spark: SparkSession, checkpoint: Checkpoint, location: str, old_groups: int, key_groups: KeyGroups
) -> DataFrame:
    """Return the pieces of the newest saved state, each for the key groups that need it.

    Returns:
        Columns key_group (grouping value of the successor's group), old_group, name and blob.
    """
    new, old = grouping_values(key_groups.groups), grouping_values(old_groups)
    by_old = functions.array(
        *(
            functions.array(*(functions.lit(new[group]) for group in groups))
            for groups in receivers(old_groups, key_groups)
        )
    )
    values = functions.array(*map(functions.lit, old))
    number = functions.array_position(values, functions.col("key.key_group"))
    takers = functions.element_at(by_old, functions.col("old_group") + 1)
    return (
        spark.read.format("statestore")
        .option("path", location)
        .option("stateVarName", PIECES)
        .option("batchId", checkpoint.epochs("commits")[-1])
        .load()
        .select(
            (number - 1).cast("int").alias("old_group"),
            functions.col("user_map_key.name").alias("name"),
            functions.col("user_map_value.blob").alias("blob"),
        )
        .withColumn("key_group", functions.explode(takers))
    )
