"""The pieces of a predecessor's checkpoint, as Spark's initial state of a successor's query."""

from pyspark.sql import DataFrame, SparkSession, functions

from streaming_job.group.placement import grouping_values
from streaming_job.group.processor import PIECES
from streaming_job.log.partitioner import Layout
from streaming_job.runtime.checkpoint import Checkpoint
from streaming_job.runtime.preconditions import StartUpError
from streaming_job.settings import JobSettings
from streaming_job.takeover.inheritance import Former, receivers


def former(checkpoint: Checkpoint, settings: JobSettings, layout: Layout) -> Former:
    """Return the predecessor as its checkpoint describes it.

    Raises:
        StartUpError: there is no such checkpoint, or its state cannot be that of the successor.
    """
    fixed, where = checkpoint.fixed(), settings.predecessor_checkpoint
    if fixed is None or not checkpoint.epochs("commits"):
        raise StartUpError(
            f"FRAUD_PREDECESSOR_CHECKPOINT={where} has no saved state; correct the setting, or remove it to "
            "read the log from its beginning"
        )
    # not the job's id: the state may be a replay's, which is that of another job over the same log. The
    # tables are compared with the state (`inheritance`)
    if fixed.label_delay_ms != settings.merchant_delay_ms:
        raise StartUpError(
            f"the state in {where} has other merchant facts (label delay {_text(fixed.label_delay_ms)}, here "
            f"{_text(settings.merchant_delay_ms)}): give the checkpoint of a replay that decided with the "
            'settings here (docs/operations.md, "Merchant facts, and the label delay")'
        )
    if settings.merchant_facts and (fixed.layout, fixed.key_groups) != (layout, settings.key_groups):
        raise StartUpError(
            f"the merchant facts of the state in {where} name the {fixed.key_groups} key groups that wrote "
            f"them, of {fixed.layout}; set FRAUD_KEY_GROUPS={fixed.key_groups}"
        )
    return Former(fixed.layout, fixed.key_groups)


def _text(label_delay_ms: int | None) -> str:
    return "none" if label_delay_ms is None else f"{label_delay_ms} ms"


def initial_state(
    spark: SparkSession,
    checkpoint: Checkpoint,
    location: str,
    predecessor: Former,
    layout: Layout,
    key_groups: int,
) -> DataFrame:
    """Return the pieces of the newest saved state, each for the key groups that need it.

    Returns:
        Columns key_group (grouping value of the successor's group), old_group, name and blob.
    """
    new, old = grouping_values(key_groups), grouping_values(predecessor.groups)
    by_old = functions.array(
        *(
            functions.array(*(functions.lit(new[group]) for group in groups))
            for groups in receivers(predecessor, layout, key_groups)
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
