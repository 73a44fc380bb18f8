"""What became of labelled transactions: of a transaction's labels one counts. Pure.

That is the last label to arrive that says fraud or genuine, whichever topic has it (`labels.Position`), as in
the sidecar's live precision and its guard `precision`. Without such a label, the last refund counts. Labels
that break their contract count nowhere.
"""

from streaming_job.contracts.topics import Topics
from streaming_job.decode import labels
from streaming_job.decode.strict import Rejected
from streaming_job.log.records import Records


class NewestLabels:
    """The label that counts of each transaction, from labels read in any order."""

    def __init__(self, topics: Topics) -> None:
        self.contracts = labels.contracts(topics)
        self.fraud: dict[tuple[str, str], bool | None] = {}
        """Whether a transaction was fraud, by (card_id, transaction_id); None: all its labels are refunds."""
        self.newest = 0
        """Arrival of the newest label, ms; 0 without labels."""
        self._ranks: dict[tuple[str, str], tuple[bool, labels.Position]] = {}

    def add(self, records: Records) -> None:
        """Add records of one of the topics of labels."""
        columns = records.keys.to_pylist(), records.values.to_pylist()
        for row in zip(*columns, records.arrivals.tolist(), records.offsets.tolist(), strict=True):
            self.add_record(records.topic, *row)

    def add_record(
        self, topic: str, key: bytes | None, value: bytes | None, arrival: int, offset: int
    ) -> None:
        """Add a record of one of the topics of labels."""
        contract = self.contracts[topic]
        try:
            label = labels.read(key, value, contract)
        except Rejected:
            return  # a dead letter of the job
        identity = label.card_id, label.transaction_id
        rank = label.fraud is not None, labels.position(contract, arrival, offset)
        if rank >= self._ranks.get(identity, rank):
            self._ranks[identity], self.fraud[identity] = rank, label.fraud
        self.newest = max(self.newest, arrival)
