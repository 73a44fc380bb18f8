"""Keys and values of dead letters that were too many to travel through Spark: read from the log once more.

A flood of broken records must not need more memory than a flood of good ones, whatever their size.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from streaming_job import reading
from streaming_job.packets import DeadLetter
from streaming_job.settings import JobSettings
from streaming_job.source.errors import LogError


def completed(letters: Iterable[DeadLetter], settings: JobSettings) -> Iterator[DeadLetter]:
    """The letters with keys and values, in the same order; one record at a time is held.

    Args:
        letters: by topic, partition and offset.
        settings: say where the brokers are.

    Raises:
        LogError: a record is not there any more, or the brokers do not answer.
    """
    reader: Consumer | None = None
    try:
        for (topic, partition), some in groupby(letters, key=lambda letter: (letter.topic, letter.partition)):
            here = list(some)
            if wanted := [letter.offset for letter in here if not letter.is_whole]:
                if reader is None:
                    reader = reading.consumer(settings.bootstrap_servers, settings.kafka, settings.job_id)
                records = _records(reader, topic, partition, wanted)
            for letter in here:
                yield letter if letter.is_whole else _with(letter, next(records))
    finally:
        if reader is not None:
            reader.close()


def _with(letter: DeadLetter, record: Message) -> DeadLetter:
    return replace(letter, key=record.key(), value=record.value(), is_whole=True)


def _records(reader: Consumer, topic: str, partition: int, wanted: list[int]) -> Iterator[Message]:
    """The records at these offsets, which rise."""
    found = 0
    try:
        for message in reading.to_end(reader, TopicPartition(topic, partition, wanted[0])):
            offset = message.offset() or 0
            if offset > wanted[found]:
                break
            if offset == wanted[found]:
                yield message
                found += 1
                if found == len(wanted):
                    return
    except KafkaException as fault:
        raise LogError(
            f"the dead letter {topic}-{partition}@{wanted[found]} cannot be read again: "
            f"{fault.args[0].str()}; check the brokers, then start the job again; nothing is lost"
        ) from fault
    raise LogError(
        f"{topic}-{partition}@{wanted[found]} became a dead letter and was gone before it could be written: "
        "retention has taken it, or the topic was made anew; see docs/operations.md"
    )
