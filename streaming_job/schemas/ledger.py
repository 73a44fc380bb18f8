"""The topic of schemas: reads what the job has accepted, and adds schemas."""

from contextlib import closing, suppress

from confluent_kafka import KafkaException, TopicPartition

from feature_store.errors import FraudError
from streaming_job.contracts.record_schemas import RecordSchema
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.decode.framed import RecordSchemas
from streaming_job.decode.strict import Rejected
from streaming_job.log import clients, follow
from streaming_job.log.clients import Consumer, describe

CLIENT = "fraud-schemas"
TIMEOUT_S = 60.0


class SchemaTopicError(FraudError):
    """The topic of schemas has no name, cannot be read, or has not confirmed a schema.

    Set `FRAUD_TOPICS__RECORD_SCHEMAS`, here and for the job; run `fraud job topics`; check the brokers.
    """


class FollowedSchemas:
    """The schemas of the topic; each read continues where the last one has ended."""

    def __init__(self, settings: LetterSettings, client: str = CLIENT) -> None:
        """Connect at the first read.

        Args:
            client: group id of the client, for the brokers' logs and permissions.
        """
        self._settings, self._client = settings, client
        self._reader: Consumer | None = None
        self._schemas, self._position = RecordSchemas(), 0

    def read(self) -> RecordSchemas | None:
        """Return the schemas that the topic has now; None: the job does not read framed transactions.

        Raises:
            SchemaTopicError: the topic cannot be read.
        """
        topic = self._settings.topics.record_schemas
        if not topic:
            return None
        try:
            self._reader = self._reader or clients.reader(self._settings, self._client)
            for message in follow.to_end(self._reader, TopicPartition(topic, 0, self._position)):
                with suppress(Rejected):  # as in the job, where it is a dead letter
                    self._schemas.add(message.timestamp()[1], message.value())
                self._position = (message.offset() or 0) + 1
            self._reader.unassign()  # else it would go on fetching
        except KafkaException as fault:
            raise SchemaTopicError(f"{topic} cannot be read: {describe(fault)}") from fault
        return self._schemas

    def close(self) -> None:
        """Close the connections."""
        if self._reader is not None:
            self._reader.close()


def read(settings: LetterSettings, client: str = CLIENT) -> RecordSchemas | None:
    """Return what `FollowedSchemas` reads at once."""
    with closing(FollowedSchemas(settings, client)) as schemas:
        return schemas.read()


def publish(settings: LetterSettings, schema: RecordSchema, event: bytes) -> bool:
    """Write a schema, unless the topic has it; return whether it was written.

    When it returns, the job reads the schema before it decides any transaction that arrives after it: with
    one broker any that is sent from now on; the clocks of several may differ.

    Args:
        event: the record, of which `schema` was read.

    Raises:
        SchemaTopicError: the topic cannot be read or written, or has another schema with this id.
    """
    topic, known = settings.topics.record_schemas, read(settings)
    if known is None:
        raise SchemaTopicError(
            "FRAUD_TOPICS__RECORD_SCHEMAS is not set, so the job reads no framed transactions"
        )
    if known.has(schema):
        return False
    try:
        known.add(0, event)
    except Rejected as fault:
        raise SchemaTopicError(f"{topic}: {fault.detail}") from fault
    try:
        producer = clients.producer(settings)
        key = str(schema.schema_id).encode()
        clients.produce(producer, topic, key, event, partition=0)
        producer.flush(TIMEOUT_S)
    except KafkaException as fault:
        raise SchemaTopicError(f"{topic} cannot be written: {describe(fault)}") from fault
    written = read(settings)
    if written is None or not written.has(schema):
        raise SchemaTopicError(f"{topic} has not confirmed schema {schema.schema_id}; repeat the command")
    return True
