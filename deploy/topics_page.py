"""Generator of docs/topics.md from the table of topics: `python -m deploy.topics_page FILE`."""

import sys
from collections.abc import Iterable
from pathlib import Path

from streaming_job.contracts.topic import Component, Topic, Without
from streaming_job.contracts.topics import Topics
from streaming_job.permissions import Permission, needed
from streaming_job.settings import JobSettings

_HEAD = """# Topics

Made from `streaming_job/contracts/topics.py` and `streaming_job/permissions.py` by `make docs`; a test fails
when they differ. Names are the defaults; `FRAUD_TOPICS__<NAME>` renames a topic ([settings](settings.md)).
`record-schemas` has no default, and is used only if `FRAUD_TOPICS__RECORD_SCHEMAS` names it
([schemas](schemas.md)).
[Operations](operations.md) says how `fraud job topics` creates them, and what a start does about differences.
Contracts are JSON Schemas in `streaming_job/contracts`.

"""

_COLUMNS = """| topic | role | contract | key | kept | because |
|---|---|---|---|---|---|
"""

_COUNTED = """
Each progress record has the number of records that its Kafka transaction wrote to a topic (`counts`), and the
SHA-256 over their values (`digests`), by the names below; `fraud verify` compares both with the topic.

| topic | count | digest |
|---|---|---|
"""

_PERMISSIONS = """
## Permissions

With an authoriser on the brokers each component needs the permissions below, and can have a principal of its
own. `fraud job permissions User:NAME --of COMPONENT` prints them as commands of Kafka's `kafka-acls.sh`, with
the topic names and the job id of your settings. In the tests each component logs in as a user that has these
permissions and no others. Read and Write imply Describe.

The tables are those of a job that keeps merchant facts and reads framed transactions, with two key groups.
Without merchant facts the job needs nothing on `labels`, `chargebacks` and `merchant-facts`. Consumer groups
with Describe are names of clients that never join them: librdkafka asks for the coordinator all the same.
"""


TOPICS = Topics(record_schemas="record-schemas")
"""All topics; by default some are not used, and have no name."""


def page() -> str:
    """Return the text of docs/topics.md."""
    rows = "".join(_row(name, row) for name, row in TOPICS.rows())
    settings = JobSettings(
        bootstrap_servers="none", mlflow_tracking_uri="none", checkpoint="none", work_dir=Path("none"),
        merchant_facts=True, job_id="card-fraud", key_groups=2, topics=TOPICS,
    )  # fmt: skip
    tables = "".join(_table(component, needed(component, settings)) for component in Component)
    counted = "".join(_counts(name, row) for name, row in TOPICS.rows() if row.is_written)
    return f"{_HEAD}{_COLUMNS}{rows}{_COUNTED}{counted}{_PERMISSIONS}{tables}"


def _row(name: str, row: Topic) -> str:
    retention = row.retention
    kept = "for ever" if retention.days is None else f"{retention.days} days"
    if retention.is_compacted:
        kept = "the newest record of each key, for ever"
    contract = row.contract.reason if isinstance(row.contract, Without) else f"`{row.contract}`"
    return f"| `{name}` | {row.role.value} | {contract} | {row.key} | {kept} | {retention.reason} |\n"


def _counts(name: str, row: Topic) -> str:
    count = f"none: {row.count.reason}" if isinstance(row.count, Without) else f"`{row.count}`"
    digest = count if row.without_digest is None else f"none: {row.without_digest.reason}"
    return f"| `{name}` | {count} | {digest} |\n"


def _table(component: Component, permissions: Iterable[Permission]) -> str:
    by_operations: dict[tuple[str, str], list[str]] = {}
    for permission in permissions:
        key = permission.resource.value, ", ".join(operation.value for operation in permission.operations)
        name = f"`{permission.name}`" + (" and what begins with it" if permission.is_prefix else "")
        by_operations.setdefault(key, []).append(name)
    lines = "".join(
        f"| {resource} | {', '.join(names)} | {operations} |\n"
        for (resource, operations), names in by_operations.items()
    )
    return f"\n### {component.value}\n\n| resource | names | operations |\n|---|---|---|\n{lines}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
