"""Precision, recall and money of one side's alerts, as far as labels are known. Pure, except `read`."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import TopicPartition
from numpy.typing import NDArray
from pyarrow import compute

from deploy.replay.comparison.differences import SUPPRESSED, Side
from streaming_job.decode.newest_labels import NewestLabels
from streaming_job.log import clients, follow, topic_reader
from streaming_job.settings import JobSettings

Labels = Mapping[tuple[str, str], bool]
"""(card_id, transaction_id) -> whether it is fraud, by the last label to arrive."""


def read(settings: JobSettings) -> Labels:
    """Read all labels; empty where there are no topics of labels."""
    newest = NewestLabels(settings.topics)
    with closing(clients.reader(settings, "fraud-replay")) as reader:
        topics = [topic for topic in newest.contracts if topic_reader.exists(reader, topic)]
        starts = [
            TopicPartition(topic, part, first)
            for topic in topics
            for part, (first, _) in topic_reader.bounds(reader, topic).items()
        ]
        for message in follow.Follower(reader, starts).to_end() if starts else ():
            arrival, offset = message.timestamp()[1], message.offset() or 0
            newest.add_record(message.topic() or "", message.key(), message.value(), arrival, offset)
    return {identity: fraud for identity, fraud in newest.fraud.items() if fraud is not None}


def outcomes(table: pa.Table, labels: Labels) -> NDArray[np.object_]:
    """Return the label of each alert: True for fraud, False for genuine, None if unknown; shape (n,)."""
    if not labels:
        return np.full(len(table), None, dtype=object)
    pairs = zip(table["card_id"].to_pylist(), table["transaction_id"].to_pylist(), strict=True)
    return np.array([labels.get(pair) for pair in pairs], dtype=object)


def weighed(side: Side, labels: Labels) -> dict[str, Any]:
    """Return what one side's alerts were worth; a suppressed alert counts as none.

    Recall is that of the known frauds, of whatever time; it is the same for both sides if they find the same.
    """
    sent = side.table.filter(compute.not_equal(side.table["outcome"], SUPPRESSED))
    found = outcomes(sent, labels)
    frauds, genuine = int((found == True).sum()), int((found == False).sum())  # noqa: E712  elements
    known = sum(labels.values())
    return {
        "fraud": frauds,
        "genuine": genuine,
        "unknown": len(sent) - frauds - genuine,
        "precision": round(frauds / (frauds + genuine), 6) if frauds + genuine else None,
        "recall": round(frauds / known, 6) if known else None,
        "amount_of_fraud": _amounts(sent, found == True),  # noqa: E712
        "amount_of_genuine": _amounts(sent, found == False),  # noqa: E712
    }


def _amounts(table: pa.Table, chosen: NDArray[np.bool_]) -> dict[str, float]:
    rows = table.filter(pa.array(chosen.astype(bool))).group_by("currency").aggregate([("amount", "sum")])
    return {
        currency: round(total, 2)
        for currency, total in sorted(
            zip(rows["currency"].to_pylist(), rows["amount_sum"].to_pylist(), strict=True)
        )
    }
