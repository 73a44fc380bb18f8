"""Mended dead letters, back to the topics that their records came from: each letter once.

All of them and a note of each are one Kafka transaction: a replay that is cut off has happened whole or not
at all, and one that is repeated finds the notes. A note is a record of `dead-letter-replays` (compacted),
keyed by the letter's own place.

A transaction goes to the partition that the producers' partitioner gives its card, which is the only one in
which the job takes it (`wrong_partition`). A record of a table goes to the partition that it came from; with
a mended key, to the key's.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import KafkaException, Producer, TopicPartition

from models.rollouts import events
from streaming_job.contracts import Contract, ContractError
from streaming_job.dead_letters.letter import Letter, LetterError
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.decode import labels, profiles, strict
from streaming_job.decode.strict import Rejected
from streaming_job.log import topic_reader, topic_writer
from streaming_job.log.partitioner import KeyGroups, Partitioner

HEADER = "dead_letter"
"""Of a record that was sent again: the place of its letter."""
TIMEOUT_S = 60.0
MAX_MESSAGE_BYTES = 1_000_000_000
"""The most that librdkafka takes: how large a record may be is for the topic's brokers to say."""
MOST = 50_000
"""Letters that one replay takes: they are one transaction."""
FAULTS_TOLD = 10


@dataclass(frozen=True)
class Replayed:
    """What became of the letters."""

    sent: int
    repeated: int
    """Left out because they had been sent before."""


def check(letters: Sequence[Letter], settings: LetterSettings) -> None:
    """See that the job would take the records now; their times are its own to judge.

    Raises:
        LetterError: it would not; names the letters and what is still wrong.
    """
    faults = []
    for letter in letters:
        try:
            _decode(letter, settings)
        except (Rejected, ContractError) as fault:
            told = fault.detail if isinstance(fault, Rejected) else str(fault)
            faults.append(f"{letter.name}: {told}")
    if faults:
        more = f" (and {len(faults) - FAULTS_TOLD} more)" if len(faults) > FAULTS_TOLD else ""
        raise LetterError(
            f"{len(faults)} of {len(letters)} records would be refused again{more}; mend them, or leave them "
            f"out: {'; '.join(faults[:FAULTS_TOLD])}"
        )


def _decode(letter: Letter, settings: LetterSettings) -> None:
    topics = settings.topics
    if letter.topic == topics.transactions:
        card_id = strict.transaction(letter.value)["card_id"]
        if settings.refuse_card_numbers:
            strict.check_card_number(card_id)
    elif letter.topic == topics.profiles:
        profiles.profile_change(letter.key, letter.value, letter.partition, letter.offset, letter.arrival)
    elif letter.topic == topics.model_rollouts:
        events.read(letter.value or b"")
    elif letter.topic == topics.labels:
        labels.read(letter.key, letter.value, Contract.LABEL)
    elif letter.topic == topics.chargebacks:
        labels.read(letter.key, letter.value, Contract.CHARGEBACK)
    else:
        raise LetterError(
            f"{letter.name} is of topic {letter.topic}, no input of this job; check the settings"
        )


def send(
    settings: LetterSettings, letters: Sequence[Letter], *, by: str, again: bool = False, dry: bool = False
) -> Replayed:
    """Send letters' records again, to the topic they came from.

    Args:
        settings: where.
        letters: whole, with key and value as they should be; `check` has passed them.
        by: who asks, for the note.
        again: also those that have been sent before.
        dry: only say what would be done.

    Raises:
        LetterError: too many, two of the same letter, somebody else replays right now, or the brokers fail.
    """
    if len(letters) > MOST:
        raise LetterError(f"{len(letters)} dead letters are too many for one replay; give {MOST} at most")
    if len({letter.name for letter in letters}) < len(letters):
        raise LetterError("the same dead letter is there more than once; leave one of each")
    topic = settings.topics.dead_letters
    try:
        # another replay that has not ended is cut off here, and settled before the notes are read
        producer = None if dry else _producer(settings, f"{topic}-replay")
        known = set() if again else _sent_before(settings)
        chosen = [letter for letter in letters if letter.name not in known]
        if producer is not None and chosen:
            _send(producer, settings, chosen, by)
        return Replayed(len(chosen), len(letters) - len(chosen))
    except KafkaException as fault:
        raise LetterError(
            f"the replay was cut off, it has happened whole or not at all: {fault.args[0].str()}; check the "
            "brokers, and that nobody else replays, then repeat the command: what was sent is left out"
        ) from fault


def _producer(settings: LetterSettings, name: str) -> Producer:
    producer = Producer(
        {
            "log_level": 0,
            **settings.kafka,
            "bootstrap.servers": settings.bootstrap_servers,
            "transactional.id": name,
            "message.max.bytes": MAX_MESSAGE_BYTES,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def _sent_before(settings: LetterSettings) -> set[str]:
    """Names of the letters that have a note."""
    topic = settings.topics.dead_letter_replays
    reader = topic_reader.consumer(settings.bootstrap_servers, settings.kafka, "fraud-dead-letters")
    try:
        return {
            (message.key() or b"").decode(errors="replace")
            for partition in topic_reader.partitions(reader, topic)
            for message in topic_reader.to_end(reader, TopicPartition(topic, partition, 0))
        }
    finally:
        reader.close()


def destination(letter: Letter, settings: LetterSettings, partitions: int) -> int:
    """The partition that a letter's record is sent to.

    Args:
        letter: `check` has passed it.
        settings: names the topics and the partitioner.
        partitions: how many the letter's topic has.
    """
    if letter.topic == settings.topics.transactions:
        card_id: str = strict.transaction(letter.value)["card_id"]
        return KeyGroups(settings.partitioner, partitions, groups=1).partition_of(card_id)
    if not letter.key_changed or letter.key is None:
        return letter.partition
    # Debezium and the tools that write rollouts are not the bank's producers: they have Java's partitioner
    by_key = KeyGroups(Partitioner.MURMUR2, partitions, groups=1)
    return int(by_key.partitions_of(pa.array([letter.key], pa.binary()))[0])


def _partitions(producer: Producer, topic: str) -> int:
    found = producer.list_topics(topic, TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return len(found.partitions)


def _send(producer: Producer, settings: LetterSettings, letters: Sequence[Letter], by: str) -> None:
    counts = {topic: _partitions(producer, topic) for topic in {letter.topic for letter in letters}}
    producer.begin_transaction()
    for letter in letters:
        topic_writer.produce(
            producer, letter.topic, letter.key, letter.value,
            partition=destination(letter, settings, counts[letter.topic]),
            timestamp=letter.arrival,  # kept by a topic with CreateTime; others stamp the time of the replay
            headers=[(HEADER, letter.name.encode())],
        )  # fmt: skip
        note = {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset, "by": by}
        note["at"] = int(time.time() * 1000)
        value = json.dumps(note).encode()
        topic_writer.produce(producer, settings.topics.dead_letter_replays, letter.name.encode(), value)
    producer.commit_transaction(TIMEOUT_S)
