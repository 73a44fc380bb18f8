"""The end of a job that is drained: it decides what its inputs hold when it starts, and ends.

All key groups then have read the tables equally far, and the transactions to their end. So the state can be
divided anew, by other partitions, and nothing has to be decided again (`takeover`).
"""

import json
from collections.abc import Iterable
from functools import partial

from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.records import Offsets, name_of
from streaming_job.runtime.preconditions import StartUpError
from streaming_job.settings import JobSettings


def ends(settings: JobSettings, partitions: int) -> Offsets:
    """Return the ends of all inputs.

    Args:
        partitions: number of partitions of the transactions that the job decides.

    Raises:
        StartUpError: the job keeps merchant facts.
    """
    if settings.merchant_facts:
        raise StartUpError(
            "a job that keeps merchant facts cannot be drained, because its facts follow its decisions; "
            "remove FRAUD_DRAIN"
        )
    client = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    topic = settings.topics.transactions
    others = (*settings.tables, *settings.retired_transactions)
    with EndOffsets(client, (topic, *others)) as reader:
        # the tables after the transactions, whose decisions may depend on them
        last = with_retries(partial(reader.last, (topic,)))
        last |= with_retries(partial(reader.last, others))
    return {tp: end for tp, end in last.items() if tp[0] != topic or tp[1] < partitions}


def is_over(until: Offsets, positions: Iterable[str]) -> bool:
    """Return whether all key groups have saved all up to the ends.

    Args:
        positions: P of each key group, as in the summary of an epoch.
    """
    wanted = {name_of(tp): end for tp, end in until.items()}
    saved = list(map(json.loads, positions))
    return all(saved) and all(wanted.get(name, end) == end for each in saved for name, end in each.items())
