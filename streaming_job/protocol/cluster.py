"""The brokers as one client knows them: leaders, coordinators, and connections to them."""

import math
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum, auto

from confluent_kafka import KafkaError, KafkaException
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from streaming_job.log.records import PartitionId
from streaming_job.protocol.connection import (
    CONNECT_S,
    OLDEST,
    Answer,
    Connection,
    UnreachableError,
    require,
)
from streaming_job.protocol.login import Address, Login, addresses
from streaming_job.runtime import pauses

PAUSE_S = 0.02
"""Time until brokers that cannot be reached are tried again."""
AGAIN_S = 0.1
"""Time for which a broker that could not be reached is not tried again: many partitions may be its own."""
MAX_AGE_S = 300.0
"""Age after which leaders and numbers of partitions are looked up again: topics may get more partitions."""


class Kind(IntEnum):
    """What a broker coordinates."""

    GROUP = 0
    TRANSACTIONS = 1


class Use(Enum):
    """What a connection is for: a broker handles the requests of one connection one after the other."""

    RECORDS = auto()
    OFFSETS = auto()
    OTHERS = auto()


class Cluster:
    """What is known of the brokers, looked up when needed; used by one thread."""

    def __init__(self, servers: str, kafka: Mapping[str, str], topics: Iterable[str]) -> None:
        """Connect to nothing yet.

        Args:
            servers: host:port[,host:port].
            kafka: client settings with librdkafka's names.

        Raises:
            LoginError: the settings of TLS or SASL cannot be used.
        """
        self._login = Login.from_settings(kafka)
        self._servers = addresses(servers)
        self._topics = list(topics)
        self._addresses: dict[int, Address] = {}
        self._brokers: set[int] = set()
        self._leaders: dict[PartitionId, int] = {}
        self._partitions: dict[str, int] = {}
        self._errors: dict[str, int] = {}
        self.known_at = -math.inf
        """When leaders and partitions were looked up, on the monotonic clock."""
        self._coordinators: dict[Kind, Address] = {}
        self._connections: dict[tuple[Address, Use], Connection] = {}
        self._failed: dict[Address, tuple[float, UnreachableError]] = {}
        """When and why brokers could not be reached or gave no answer, since they were connected."""

    def refresh(self, deadline: float) -> None:
        """Look up leaders and partitions.

        Raises:
            KafkaException: no broker answers in time.
        """
        topics = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in self._topics]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = self._ask_any(request, deadline)
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._brokers.update(self._addresses)
        for topic in answer.topics:
            self._errors[topic.name] = topic.error_code
            if topic.error_code:
                continue
            self._partitions[topic.name] = len(topic.partitions)
            for partition in topic.partitions:
                self._leaders[topic.name, partition.partition_index] = partition.leader_id
                self._brokers.update(partition.replica_nodes)
        self.known_at = time.monotonic()

    @property
    def brokers(self) -> int:
        """The number of brokers that were seen: alive, or as holders of replicas."""
        return len(self._brokers)

    def partitions(self, topic: str, deadline: float) -> int:
        """Return a topic's number of partitions; waits for a topic that the brokers do not know yet.

        Raises:
            KafkaException: as `refresh`; or the topic is still unknown at the deadline, or must not be seen.
        """
        if time.monotonic() - self.known_at > MAX_AGE_S:
            self.refresh(deadline)
        while topic not in self._partitions:
            code = self._errors.get(topic, 0)
            if code not in (0, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE):
                require(code, topic)
            if time.monotonic() > deadline:
                require(code or KafkaError.UNKNOWN_TOPIC_OR_PART, topic)
            pauses.pause(PAUSE_S)
            self.refresh(deadline)
        return self._partitions[topic]

    def by_leader(self, partitions: Iterable[PartitionId]) -> Mapping[Address | None, list[PartitionId]]:
        """Return partitions by the address of their leader; None: there is none."""
        led: defaultdict[Address | None, list[PartitionId]] = defaultdict(list)
        for partition in partitions:
            led[self._addresses.get(self._leaders.get(partition, -1))].append(partition)
        return led

    def leader(self, address: Address | None, deadline: float) -> Connection:
        """Return a connection to a leader of `by_leader`.

        Raises:
            UnreachableError: there is none, or it cannot be reached.
        """
        if address is None:
            raise UnreachableError("no leader")
        return self._connected(address, Use.RECORDS, deadline)

    def coordinator(self, kind: Kind, key: str, deadline: float) -> Connection:
        """Return a connection to the coordinator of a group or a transactional id; waits until there is one.

        Raises:
            KafkaException: none in time, or no permission.
        """
        while True:
            try:
                if kind not in self._coordinators:
                    self._coordinators[kind] = self._found(kind, key, deadline)
                use = Use.OFFSETS if kind is Kind.GROUP else Use.OTHERS
                return self._connected(self._coordinators[kind], use, deadline)
            except UnreachableError as fault:
                self._coordinators.pop(kind, None)
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._TRANSPORT, str(fault))) from fault
            pauses.pause(PAUSE_S)

    def forget_coordinator(self, kind: Kind) -> None:
        """Look the coordinator up again before the next request."""
        self._coordinators.pop(kind, None)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    def _found(self, kind: Kind, key: str, deadline: float) -> Address:
        request = FindCoordinatorRequest(key_type=int(kind), coordinator_keys=[key])
        (found,) = self._ask_any(request, deadline, most=OLDEST).coordinators
        if found.error_code == KafkaError.COORDINATOR_NOT_AVAILABLE:
            raise UnreachableError(f"{key} has no coordinator")
        require(found.error_code, f"coordinator of {key}")
        return found.host, found.port

    def _ask_any(self, message: ApiMessage, deadline: float, most: int | None = None) -> Answer:
        """Ask any broker; another one each time, because some may be cut off."""
        address, connection = self._any(deadline)
        try:
            return connection.ask(message, deadline, most)
        except KafkaException as fault:
            self._failed[address] = time.monotonic(), UnreachableError(str(fault.args[0]))
            raise

    def _any(self, deadline: float) -> tuple[Address, Connection]:
        known = list(dict.fromkeys((*self._addresses.values(), *self._servers)))
        while True:
            # a silent one costs seconds, and may be among the servers for as long as its machine is gone
            for address in sorted(random.sample(known, len(known)), key=self._failed.__contains__):
                try:
                    return address, self._connected(address, Use.OTHERS, deadline)
                except UnreachableError as fault:
                    last = fault
                # without time left, others would only seem unreachable, too
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, str(last))) from last
            pauses.pause(PAUSE_S)

    def _connected(self, address: Address, use: Use, deadline: float) -> Connection:
        connection = self._connections.get((address, use))
        if connection is not None:
            if connection.usable:
                return connection
            connection.close()
        now = time.monotonic()
        failed_at, why = self._failed.get(address, (-AGAIN_S, None))
        if why is not None and now - failed_at < AGAIN_S:
            raise why
        pauses.look()  # several brokers in turn may be silent
        try:
            made = Connection(*address, self._login, min(CONNECT_S, deadline - now))
        except UnreachableError as fault:
            self._failed[address] = (time.monotonic(), fault)
            raise
        self._failed.pop(address, None)
        self._connections[address, use] = made
        return made
