"""Records that are too large for their dead letters, fetched from the log while they are there."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streaming_job.dead_letters.letter import Letter, LetterError
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.log import topic_reader

NO_SUCH_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
AT_ONCE = {"fetch.wait.max.ms": "5", "fetch.error.backoff.ms": "5"}
"""Client settings: a fetch that waits for records to come would delay the next letter's by half a second."""
TOLD = 10
"""Letters that are named."""


def completed(settings: LetterSettings, letters: Iterable[Letter]) -> Iterator[Letter]:
    """The letters with what they do not carry, from the log; as they are where their records are gone.

    A record is gone when retention or compaction has removed it, or when another one (of a topic made anew)
    lies at its offset: the bytes' SHA-256 tells.

    Raises:
        LetterError: the brokers do not answer.
    """
    reader: Consumer | None = None
    try:
        for letter in letters:
            if letter.is_whole:
                yield letter
                continue
            if reader is None:
                reader = topic_reader.consumer(
                    settings.bootstrap_servers, {**settings.kafka, **AT_ONCE}, "fraud-dead-letters"
                )
            record = _fetched(reader, letter)
            yield letter if record is None else _filled(letter, record)
    except KafkaException as fault:
        raise LetterError(
            f"a dead letter's record cannot be read from the log: {fault.args[0].str()}; check address and "
            "brokers"
        ) from fault
    finally:
        if reader is not None:
            reader.close()


def require_whole(letters: Sequence[Letter]) -> None:
    """See that nothing of the letters' records is missing.

    Raises:
        LetterError: records are gone; names the letters, and what to do.
    """
    missing = [letter for letter in letters if not letter.is_whole]
    if missing:
        raise LetterError(
            f"{told_gone(missing)}; nothing was sent. If their producers still have them, put key and value "
            "into the lines of a `list --raw` file, otherwise leave these dead letters out"
        )


def told_gone(letters: Sequence[Letter]) -> str:
    """Names letters whose records are gone, and these records, in words."""
    names = [
        f"{letter.name} (record {letter.topic}/{letter.partition}/{letter.offset}: {_sizes(letter)})"
        for letter in letters
    ]
    more = f" and {len(names) - TOLD} more" if len(names) > TOLD else ""
    return (
        f"{len(letters)} dead letters are not whole, and their records are gone from the log: "
        f"{', '.join(names[:TOLD])}{more}"
    )


def _sizes(letter: Letter) -> str:
    parts = (("key", letter.key_left_out), ("value", letter.value_left_out))
    return ", ".join(f"{name} of {part.size:,} bytes" for name, part in parts if part is not None)


def _fetched(reader: Consumer, letter: Letter) -> Message | None:
    """The record at a letter's offset; None if none is there."""
    try:
        # asked first: the client would look for a topic or partition that is not there for half a minute
        if letter.partition not in topic_reader.partitions(reader, letter.topic):
            return None
    except KafkaException as fault:
        if fault.args[0].code() in NO_SUCH_TOPIC:
            return None
        raise
    # from an offset that is no longer in the log the reader goes on with one that is
    place = TopicPartition(letter.topic, letter.partition, letter.offset)
    record = next(topic_reader.to_end(reader, place), None)
    return record if record is not None and record.offset() == letter.offset else None


def _filled(letter: Letter, record: Message) -> Letter:
    """The letter with the record's bytes; as it is if they are not those that were left out."""
    if letter.key_left_out is not None and letter.key_left_out.is_of(record.key()):
        letter = replace(letter, key=record.key(), key_left_out=None)
    if letter.value_left_out is not None and letter.value_left_out.is_of(record.value()):
        letter = replace(letter, value=record.value(), value_left_out=None)
    return letter
