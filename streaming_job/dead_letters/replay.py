"""The replay of dead letters to the topics of their records, each letter once.

All records, and a note on each letter, are written in one Kafka transaction: an interrupted replay has sent
all or nothing, and the next replay finds the notes. A note is a record of `dead-letter-replays` (compacted),
keyed by topic, partition and offset of the letter itself, not of the refused record.

A transaction is sent to the partition that the producers' partitioner gives its card; in any other partition
the job refuses it (reason `wrong_partition`). One of a topic that the transactions have left (reason
`retired_topic`) is sent to the topic where they are now. A rollout event or a schema is sent to partition 0.
Any other record is sent to its original partition or, if its key was changed, to that of the new key.

A replayed row of the profiles takes effect only if the job has no newer one of its card, by Postgres's log
position. So a row without a position is not replayed, nor is a tombstone.
"""

import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, TopicPartition

from models.rollouts import reading
from streaming_job.contracts import ContractError, Reason
from streaming_job.dead_letters.letter import Letter, LetterError
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.decode import card_numbers, labels, profiles, strict
from streaming_job.decode.framed import RecordSchemas
from streaming_job.decode.strict import Rejected
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import Producer, describe
from streaming_job.log.partitioner import KeyGroups, Partitioner

HEADER = "dead_letter"
"""Header of a record that was sent again: the name of its letter."""
TIMEOUT_S = 60.0
MAX_MESSAGE_BYTES = 1_000_000_000
"""librdkafka's maximum, so that only the brokers limit the size of a record."""
MAX_LETTERS = 50_000
"""Maximum number of letters in one replay, because they are one transaction."""
MAX_FAULTS = 10


@dataclass(frozen=True)
class ReplayReport:
    """The counts of a replay."""

    sent: int
    repeated: int
    """Number of letters left out because they had been sent before."""


def check(letters: Sequence[Letter], settings: LetterSettings, schemas: RecordSchemas | None = None) -> None:
    """Check that the job would accept the records now, except for their times, which are not checked.

    Args:
        schemas: the schemas of framed transactions; None: the job does not read such.

    Raises:
        LetterError: it would refuse some (the error names the letters and their faults), or the topic of one
            is no input of the job.
    """
    faults = []
    for letter in letters:
        try:
            _decode(letter, settings, schemas)
        except (Rejected, ContractError) as fault:
            detail = fault.detail if isinstance(fault, Rejected) else str(fault)
            faults.append(f"{letter.name}: {detail}")
    if faults:
        more = f"; and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
        raise LetterError(
            f"{len(faults)} of {len(letters)} records would be refused; correct them, or leave them "
            f"out: {'; '.join(faults[:MAX_FAULTS])}{more}"
        )


def _transaction(letter: Letter, schemas: RecordSchemas | None) -> dict[str, Any]:
    return strict.transaction(letter.value if schemas is None else schemas.json(letter.value))


def _decode(letter: Letter, settings: LetterSettings, schemas: RecordSchemas | None) -> None:
    topics = settings.topics
    if target(letter, settings) == topics.transactions:
        fields = _transaction(letter, schemas)
        if settings.refuse_card_numbers:
            card_numbers.check(fields)
    elif letter.topic == topics.profiles:
        change = profiles.profile_change(
            letter.key, letter.value, letter.partition, letter.offset, letter.arrival
        )
        if not change["lsn"][0]:
            raise Rejected(
                Reason.INVALID_VALUE,
                "without source.lsn the job cannot see whether a newer row of the card exists; touch the row "
                "in Postgres instead (UPDATE ... SET status = status), so that Debezium sends it anew",
            )
    elif letter.topic == topics.model_rollouts:
        reading.read(letter.value or b"")
    elif letter.topic and letter.topic == topics.record_schemas:
        # a copy: a transaction that needs this schema is sent once it is published
        RecordSchemas(schemas.records if schemas else ()).add(letter.arrival, letter.value)
    elif contract := labels.contracts(topics).get(letter.topic):
        labels.read(letter.key, letter.value, contract)
    else:
        raise LetterError(
            f"{letter.name} is from topic {letter.topic}, no input of this job; check the settings"
        )


def send(
    settings: LetterSettings,
    letters: Sequence[Letter],
    *,
    by: str,
    again: bool = False,
    dry: bool = False,
    schemas: RecordSchemas | None = None,
) -> ReplayReport:
    """Send the records of letters again, to the topics they came from.

    Args:
        letters: whole letters with correct key and value, as checked by `check`.
        by: name of the user, for the note.
        again: whether to send letters that have been sent before, too.
        dry: whether to only count, without sending.
        schemas: see `check`.

    Raises:
        LetterError: there are too many letters, or one is given twice; another replay was started
            meanwhile, or the brokers fail.
    """
    if len(letters) > MAX_LETTERS:
        raise LetterError(
            f"{len(letters)} dead letters are too many for one replay; give {MAX_LETTERS} at most"
        )
    if len({letter.name for letter in letters}) < len(letters):
        raise LetterError("the same dead letter is given more than once; leave one of each")
    topic = settings.topics.dead_letters
    try:
        # fences another running replay, and ends its transaction before the notes are read
        producer = None if dry else _producer(settings, f"{topic}-replay")
        sent_before = set() if again else _sent_before(settings)
        selected = [letter for letter in letters if letter.name not in sent_before]
        if producer is not None and selected:
            _send(producer, settings, selected, by, schemas)
        return ReplayReport(len(selected), len(letters) - len(selected))
    except KafkaException as fault:
        raise LetterError(
            f"the replay was interrupted, and has sent all records or none: {describe(fault)}; check the "
            "brokers, and that no other replay runs, then repeat the command: what was sent is left out, "
            "unless --again is given"
        ) from fault


def _producer(settings: LetterSettings, name: str) -> Producer:
    producer = clients.producer(
        settings, fixed={"transactional.id": name, "message.max.bytes": MAX_MESSAGE_BYTES}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def _sent_before(settings: LetterSettings) -> set[str]:
    """Return the names of the letters that have a note."""
    topic = settings.topics.dead_letter_replays
    with closing(clients.reader(settings, "fraud-dead-letters")) as reader:
        starts = [TopicPartition(topic, part, 0) for part in topic_reader.partitions(reader, topic)]
        return {
            (message.key() or b"").decode(errors="replace")
            for message in follow.Follower(reader, starts).to_end()
        }


def target(letter: Letter, settings: LetterSettings) -> str:
    """Return the topic to which a letter's record is sent."""
    is_retired = letter.topic in settings.retired_transactions
    return settings.topics.transactions if is_retired else letter.topic


def destination(
    letter: Letter, settings: LetterSettings, partitions: int, schemas: RecordSchemas | None = None
) -> int:
    """Return the partition to which a letter's record is sent.

    Args:
        letter: a letter that `check` has accepted.
        schemas: see `check`.
    """
    if target(letter, settings) == settings.topics.transactions:
        card_id: str = _transaction(letter, schemas)["card_id"]
        return KeyGroups(settings.partitioner, partitions, groups=1).partition_of(card_id)
    if letter.topic in (settings.topics.model_rollouts, settings.topics.record_schemas):
        return 0
    if not letter.key_changed or letter.key is None:
        return letter.partition
    # Debezium and the writer of labels (`streaming_job.labels.ledger`) use the partitioner of Java clients,
    # whatever the bank's producers use
    by_key = KeyGroups(Partitioner.MURMUR2, partitions, groups=1)
    return int(by_key.partitions_of(pa.array([letter.key], pa.binary()))[0])


def _send(
    producer: Producer, settings: LetterSettings, letters: Sequence[Letter], by: str,
    schemas: RecordSchemas | None,
) -> None:  # fmt: skip
    topics = {target(letter, settings) for letter in letters}
    counts = {topic: len(topic_reader.partitions(producer, topic, TIMEOUT_S)) for topic in topics}
    producer.begin_transaction()
    for letter in letters:
        clients.produce(
            producer, target(letter, settings), letter.key, letter.value,
            partition=destination(letter, settings, counts[target(letter, settings)], schemas),
            timestamp=letter.arrival,  # kept by a topic with CreateTime; others stamp the time of the replay
            headers=[(HEADER, letter.name.encode())],
        )  # fmt: skip
        note = {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset, "by": by}
        note["at"] = int(time.time() * 1000)
        value = json.dumps(note).encode()
        clients.produce(producer, settings.topics.dead_letter_replays, letter.name.encode(), value)
    producer.commit_transaction(TIMEOUT_S)
