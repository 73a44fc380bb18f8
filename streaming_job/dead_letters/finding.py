"""The search for dead letters on their topic."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition

from streaming_job.dead_letters.letter import Letter, LetterError
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import describe


@dataclass(frozen=True)
class LetterFilter:
    """A filter of dead letters; fields that are None or empty match all letters."""

    reasons: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    """Topics of the refused records."""
    since: int | None = None
    """Earliest arrival of the refused record, ms."""
    until: int | None = None
    """Latest arrival of the refused record, exclusive, ms."""
    partition: int | None = None
    """Partition of the dead-letters topic."""
    first: int = 0
    """First offset on the dead-letters topic."""
    end: int | None = None
    """End of the offsets on the dead-letters topic, exclusive."""

    def matches(self, letter: Letter) -> bool:
        """Return whether a letter matches."""
        _, partition, offset = letter.position
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (not self.topics or letter.topic in self.topics)
            and (self.since is None or letter.arrival >= self.since)
            and (self.until is None or letter.arrival < self.until)
            and (self.partition is None or partition == self.partition)
            and offset >= self.first
            and (self.end is None or offset < self.end)
        )


def find(settings: LetterSettings, letter_filter: LetterFilter) -> Iterator[Letter]:
    """Yield the matching letters on the topic, each partition in the order of offsets.

    Raises:
        LetterError: the topic cannot be read, or contains a record that is no dead letter.
    """
    topic = settings.topics.dead_letters
    try:
        with closing(clients.reader(settings, "fraud-dead-letters")) as reader:
            for partition in topic_reader.partitions(reader, topic):
                if letter_filter.partition not in (None, partition):
                    continue
                start = TopicPartition(topic, partition, letter_filter.first)
                for message in follow.to_end(reader, start, letter_filter.end):
                    offset = int(message.offset() or 0)
                    letter = Letter.from_record(topic, partition, offset, message.value())
                    if letter_filter.matches(letter):
                        yield letter
    except KafkaException as fault:
        raise LetterError(
            f"topic {topic} at {settings.bootstrap_servers} cannot be read: {describe(fault)}; check "
            "address and brokers"
        ) from fault
