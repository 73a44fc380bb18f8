"""Comparison of existing topics with what the job needs, with the remedy for each difference. Pure."""

from collections.abc import Iterable, Mapping

AT_LEAST = ("max.message.bytes", "retention.ms", "min.compaction.lag.ms", "min.insync.replicas")
"""Settings that may be greater than the job needs, unless `at_most` names them."""
UNLIMITED = "-1"
ALTER = "kafka-configs.sh --alter --entity-type topics --entity-name"


def of_settings(
    name: str, actual: Mapping[str, str | None], wanted: Mapping[str, str | None], at_most: Iterable[str] = ()
) -> list[str]:
    """List the settings that differ, one line for each.

    Args:
        name: name of the topic.
        actual: effective settings of the topic.
        wanted: settings that the job needs; None where any value will do.
        at_most: settings that may be less, but not greater, than the job needs.
    """
    lines = []
    for key, value in wanted.items():
        bound = "at most " if key in at_most else "at least " if key in AT_LEAST else ""
        if value == UNLIMITED:
            bound = ""
        if value is not None and not _satisfies(actual.get(key), value, bound):
            lines.append(
                f"{name} has {key}={actual.get(key)}, the job wants {bound}{value}: "
                f"{ALTER} {name} --add-config {key}={value}"
            )
    return lines


def of_sizes(
    name: str, actual: tuple[int, int], wanted: tuple[int | None, int], remedy: str = ""
) -> list[str]:
    """List a number of partitions that differs and a number of replicas that is too low, one line for each.

    Args:
        name: name of the topic.
        actual: number of partitions, and the minimum number of replicas of any partition.
        wanted: the numbers that the job needs; None if any number of partitions will do.
        remedy: what to do if the number of partitions differs.
    """
    lines = []
    (partitions, replicas), (wanted_partitions, wanted_replicas) = actual, wanted
    if wanted_partitions is not None and partitions != wanted_partitions:
        lines.append(f"{name} has {partitions} partitions, not {wanted_partitions}: {remedy}")
    if replicas < wanted_replicas:
        lines.append(
            f"{name} has {replicas} replicas, not {wanted_replicas}: add some with "
            f"kafka-reassign-partitions.sh, or give --replication {replicas}"
        )
    return lines


def _satisfies(actual: str | None, wanted: str, bound: str) -> bool:
    if actual is None or not bound:
        return actual == wanted
    value, limit = (float("inf") if text == UNLIMITED else int(text) for text in (actual, wanted))
    return value >= limit if bound == "at least " else value <= limit
