"""The topic of schemas: reads what the job has accepted, and adds schemas."""

from contextlib import closing, suppress

from confluent_kafka import KafkaException, TopicPartition

from feature_store.errors import FraudError
from streaming_job.contracts.record_schemas import RecordSchema
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.decode.framed import RecordSchemas
from streaming_job.decode.strict import Rejected
from streaming_job.log import clients, follow
from streaming_job.log.clients import describe

CLIENT = "fraud-schemas"
TIMEOUT_S = 60.0


class SchemaTopicError(FraudError):
    """The topic of schemas has no name, cannot be read, or has not confirmed a schema.

    Set `FRAUD_TOPICS__RECORD_SCHEMAS`, here and for the job; run `fraud job topics`; check the brokers.
    """


def read(settings: LetterSettings, client: str = CLIENT) -> RecordSchemas | None:
    """Return the schemas that the topic has now; None: the job does not read framed transactions.

    Args:
        client: group id of the client, for the brokers' logs and permissions.

    Raises:
        SchemaTopicError: the topic cannot be read.
    """
    topic = settings.topics.record_schemas
    if not topic:
        return None
    schemas = RecordSchemas()
    try:
        with closing(clients.reader(settings, client)) as reader:
            for message in follow.to_end(reader, TopicPartition(topic, 0, 0)):
                with suppress(Rejected):  # as in the job, where it is a dead letter
                    schemas.add(message.timestamp()[1], message.value())
    except KafkaException as fault:
        raise SchemaTopicError(f"{topic} cannot be read: {describe(fault)}") from fault
    return schemas


def publish(settings: LetterSettings, schema: RecordSchema, event: bytes) -> bool:
    """Write a schema, unless the topic has it; return whether it was written.

    When it returns, the job reads the schema before it decides any transaction that is sent from now on.

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
