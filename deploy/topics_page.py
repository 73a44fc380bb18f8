"""The tables of docs/topics.md, from the table of topics."""

from collections.abc import Iterable
from pathlib import Path

from deploy.page_tables import table, with_table
from streaming_job.contracts.topic import Component, Topic, Without
from streaming_job.contracts.topics import Topics
from streaming_job.permissions import Permission, needed
from streaming_job.settings import JobSettings

COLUMNS = ("topic", "role", "contract", "key", "kept", "because")
TOPICS = Topics(record_schemas="record-schemas")
"""All topics; by default some are not used, and have no name."""


def page(text: str) -> str:
    """Return the text of docs/topics.md with regenerated tables."""
    text = with_table(text, "Topics", table(COLUMNS, (_row(name, row) for name, row in TOPICS.rows())))
    counted = (_counts(name, row) for name, row in TOPICS.rows() if row.is_written)
    text = with_table(text, "Counts and digests", table(("topic", "count", "digest"), counted))
    settings = JobSettings(
        bootstrap_servers="none", mlflow_tracking_uri="none", checkpoint="none", work_dir=Path("none"),
        merchant_facts=True, job_id="card-fraud", key_groups=2, topics=TOPICS,
    )  # fmt: skip
    for component in Component:
        text = with_table(text, component.value, _permissions(needed(component, settings)))
    return text


def _row(name: str, row: Topic) -> tuple[str, ...]:
    retention = row.retention
    kept = "for ever" if retention.days is None else f"{retention.days} days"
    if retention.is_compacted:
        kept = "the newest record of each key, for ever"
    contract = row.contract.reason if isinstance(row.contract, Without) else f"`{row.contract}`"
    return f"`{name}`", row.role.value, contract, row.key, kept, retention.reason


def _counts(name: str, row: Topic) -> tuple[str, ...]:
    count = f"none: {row.count.reason}" if isinstance(row.count, Without) else f"`{row.count}`"
    digest = count if row.without_digest is None else f"none: {row.without_digest.reason}"
    return f"`{name}`", count, digest


def _permissions(permissions: Iterable[Permission]) -> str:
    by_operations: dict[tuple[str, str], list[str]] = {}
    for permission in permissions:
        key = permission.resource.value, ", ".join(operation.value for operation in permission.operations)
        name = f"`{permission.name}`" + (" and what begins with it" if permission.is_prefix else "")
        by_operations.setdefault(key, []).append(name)
    rows = ((resource, ", ".join(names), done) for (resource, done), names in by_operations.items())
    return table(("resource", "names", "operations"), rows)
