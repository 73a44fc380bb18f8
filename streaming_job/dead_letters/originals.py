"""The original records of dead letters that do not contain them whole, fetched from the log."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from streaming_job.dead_letters.letter import Letter, LetterError
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import Consumer, describe

NO_SUCH_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
BACKOFF = {"fetch.error.backoff.ms": 5}
"""Client setting: the wait after a fetch at an offset that is gone, which by default is half a second."""
MAX_NAMED = 10
"""Maximum number of letters that an error names."""


def with_payloads(settings: LetterSettings, letters: Iterable[Letter]) -> Iterator[Letter]:
    """Yield the letters, completed from the log; a letter whose record is gone stays as it is.

    A record is gone if retention or compaction has removed it, if its topic or partition no longer exists, or
    if a recreated topic has another record at its offset, which the SHA-256 shows.

    Raises:
        LetterError: the log cannot be read.
    """
    reader: Consumer | None = None
    try:
        for letter in letters:
            if letter.is_whole:
                yield letter
                continue
            if reader is None:
                reader = clients.reader(settings, "fraud-dead-letters", fixed=BACKOFF)
            record = _fetch(reader, letter)
            yield letter if record is None else _fill(letter, record)
    except KafkaException as fault:
        raise LetterError(
            f"a dead letter's record cannot be read from the log: {describe(fault)}; check address and "
            "brokers"
        ) from fault
    finally:
        if reader is not None:
            reader.close()


def require_whole(letters: Sequence[Letter]) -> None:
    """Check that all letters are whole.

    Raises:
        LetterError: records are gone; the error names the letters, and what to do.
    """
    missing = [letter for letter in letters if not letter.is_whole]
    if missing:
        raise LetterError(
            f"{describe_gone(missing)}; nothing was sent. If the producers still have the records, put key "
            "and value into the lines of a `list --raw` file, otherwise leave these dead letters out"
        )


def describe_gone(letters: Sequence[Letter]) -> str:
    """Return a text that names letters whose records are gone, and these records."""
    names = [
        f"{letter.name} (record {letter.topic}/{letter.partition}/{letter.offset}: {_sizes(letter)})"
        for letter in letters
    ]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return (
        f"{len(letters)} dead letters are not whole, and their records are gone from the log: "
        f"{', '.join(names[:MAX_NAMED])}{more}"
    )


def _sizes(letter: Letter) -> str:
    parts = (("key", letter.key_left_out), ("value", letter.value_left_out))
    return ", ".join(f"{name} of {part.size:,} bytes" for name, part in parts if part is not None)


def _fetch(reader: Consumer, letter: Letter) -> Message | None:
    """Return the log's record at the offset that a letter names; None if there is none."""
    try:
        # checked first: the client would wait half a minute for a missing topic or partition
        if letter.partition not in topic_reader.partitions(reader, letter.topic):
            return None
    except KafkaException as fault:
        if fault.args[0].code() in NO_SUCH_TOPIC:
            return None
        raise
    # if the offset is not in the log, the reader continues at another one
    start = TopicPartition(letter.topic, letter.partition, letter.offset)
    record = next(follow.to_end(reader, start), None)
    return record if record is not None and record.offset() == letter.offset else None


def _fill(letter: Letter, record: Message) -> Letter:
    """Return the letter with the record's bytes, if these are the bytes that were left out."""
    if letter.key_left_out is not None and letter.key_left_out.is_of(record.key()):
        letter = replace(letter, key=record.key(), key_left_out=None)
    if letter.value_left_out is not None and letter.value_left_out.is_of(record.value()):
        letter = replace(letter, value=record.value(), value_left_out=None)
    return letter
