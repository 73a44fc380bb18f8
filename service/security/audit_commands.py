"""`fraud audit`: list or verify the audit log of changes."""

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import typer
from confluent_kafka import KafkaException

from feature_store.utc import moment_of
from service.security import audit
from service.security.audit import AuditError, Verification
from service.security.audit_log import AuditLog, StoredRecord, require_topics
from service.settings import ServiceSettings
from streaming_job import environment
from streaming_job.log.clients import describe
from streaming_job.masking import safe

SHOWN = 5
"""Maximum number of findings in an error text."""

app = typer.Typer()


@app.command()
def audit_log(
    limit: Annotated[int, typer.Option(min=1, help="Number of newest records")] = 50,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the stored JSON, one record per line")
    ] = False,
    refused: Annotated[bool, typer.Option("--refused", help="List refused requests instead")] = False,
    check: Annotated[
        bool,
        typer.Option("--verify", help="Check the whole log instead, and print its head, the newest digest"),
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(help="Head printed by an earlier --verify: reveals a log that was cut since then"),
    ] = None,
) -> None:
    """List the changes and their authors, newest first; or verify that no record was changed or removed.

    Example: fraud audit --limit 20
    """
    settings = environment.settings(ServiceSettings)
    require_topics(settings)  # a log that is gone is not an intact one without records
    if check or head is not None:
        _verify(settings, head)
        return
    try:
        log = AuditLog(settings, settings.topics.audit_refusals if refused else "")
        records = log.newest(limit)
    except KafkaException as fault:
        raise _unreadable(settings, fault) from fault
    for stored in records:
        typer.echo(safe(stored.value) if as_json else _line(stored))


def _verify(settings: ServiceSettings, head: str | None) -> None:
    """Check that no record was changed, removed, inserted or moved; print the head."""
    topics = settings.topics
    try:
        stored = list(AuditLog(settings).all())
        refusals = list(AuditLog(settings, topics.audit_refusals).all())
    except KafkaException as fault:
        raise _unreadable(settings, fault) from fault
    result = audit.verify([record.value for record in stored], head)
    _require_intact(topics.audit_log, result, stored)
    chains: dict[bytes, list[StoredRecord]] = defaultdict(list)
    for record in refusals:
        chains[record.chain].append(record)
    for chain in chains.values():
        found = audit.verify([record.value for record in chain], is_from_the_first=False)
        _require_intact(topics.audit_refusals, found, chain)
    typer.echo(f"{result.records} records, each follows from the one before it")
    typer.echo(f"head {result.head or '-'}   keep it elsewhere; give it as --head next time")
    typer.echo(f"{len(refusals)} records of refused requests, in {len(chains)} chains")


def _require_intact(topic: str, result: Verification, stored: Sequence[StoredRecord]) -> None:
    offsets = [record.offset for record in stored]
    if not result.is_intact:
        findings = "; ".join(
            f"{finding}" + (f" (offset {offsets[finding.number]})" if finding.number < len(offsets) else "")
            for finding in islice(result.findings, SHOWN)
        )
        more = f"; and {len(result.findings) - SHOWN} more" if len(result.findings) > SHOWN else ""
        raise AuditError(f"{topic} is not what was written: {findings}{more}; find out who could write to it")


def _line(stored: StoredRecord) -> str:
    record = audit.read(stored.value)
    if record is None:
        return f"offset {stored.offset}  is not an audit record: {safe(stored.value, 60)}"
    at = moment_of(record["at"]).strftime("%Y-%m-%d %H:%M:%S")
    detail = json.dumps(record["detail"], sort_keys=True) if record["detail"] else ""
    text = (
        f"{at}  {record['actor']} ({record['role']}) from {record['from']}  {record['action']} "
        f"{record['target']}  {record['outcome']}  {detail}"
    )
    return safe(text.rstrip().encode())


def _unreadable(settings: ServiceSettings, fault: KafkaException) -> AuditError:
    return AuditError(
        f"{settings.topics.audit_log} at {settings.bootstrap_servers} cannot be read: {describe(fault)}; "
        "check the brokers"
    )
