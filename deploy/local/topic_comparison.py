"""What of an existing topic is not as the job needs it, and what to do about it: pure."""

from collections.abc import Iterable, Mapping

AT_LEAST = ("max.message.bytes", "retention.ms", "min.compaction.lag.ms", "min.insync.replicas")
"""More of these does no harm, unless the caller says so."""
UNLIMITED = "-1"
ALTER = "kafka-configs.sh --alter --entity-type topics --entity-name"


def of_settings(
    name: str, found: Mapping[str, str | None], wanted: Mapping[str, str | None], at_most: Iterable[str] = ()
) -> list[str]:
    """Settings that differ, a line for each.

    Args:
        name: of the topic.
        found: its settings, wherever they come from.
        wanted: what the job needs; None where it needs nothing.
        at_most: settings of which less does no harm, rather than more.
    """
    lines = []
    for key, value in wanted.items():
        bound = "at most " if key in at_most else "at least " if key in AT_LEAST else ""
        if value == UNLIMITED:
            bound = ""
        if value is not None and not _serves(found.get(key), value, bound):
            lines.append(
                f"{name} has {key}={found.get(key)}, the job wants {bound}{value}: "
                f"{ALTER} {name} --add-config {key}={value}"
            )
    return lines


def of_sizes(
    name: str, found: tuple[int, int], wanted: tuple[int | None, int], remedy: str = ""
) -> list[str]:
    """Numbers that differ, a line for each.

    Args:
        name: of the topic.
        found: its partitions, and the fewest replicas that one of them has.
        wanted: the same; None where any number of partitions will do.
        remedy: where the number of partitions is another.
    """
    lines = []
    (partitions, replicas), (counted, least) = found, wanted
    if counted is not None and partitions != counted:
        lines.append(f"{name} has {partitions} partitions, not {counted}: {remedy}")
    if replicas < least:
        lines.append(
            f"{name} has {replicas} replicas, not {least}: kafka-reassign-partitions.sh gives more; or say "
            f"--replication {replicas}"
        )
    return lines


def _serves(found: str | None, wanted: str, bound: str) -> bool:
    if found is None or not bound:
        return found == wanted
    have, need = (float("inf") if text == UNLIMITED else int(text) for text in (found, wanted))
    return have >= need if bound == "at least " else have <= need
