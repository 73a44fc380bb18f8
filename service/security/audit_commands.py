"""`fraud audit`: who changed what, and whether the log still says so."""

import json
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

import typer
from confluent_kafka import KafkaException

from service.security import audit
from service.security.audit import AuditError
from service.security.audit_log import AuditLog, Stored
from service.settings import ServiceSettings, say
from streaming_job import environment
from streaming_job.masking import safe

SHOWN = 5
"""Findings told at most."""

app = typer.Typer(no_args_is_help=True, help="List and verify the audit log of changes.")


@app.command("list")
def list_records(
    limit: Annotated[int, typer.Option(min=1, help="The newest so many")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="The records as they are, one a line")] = False,
) -> None:
    """Tell who changed what, newest first."""
    settings = environment.settings(ServiceSettings)
    try:
        found = AuditLog(settings).newest(limit)
    except KafkaException as fault:
        raise _unreadable(settings, fault) from fault
    for stored in found:
        typer.echo(safe(stored.value) if as_json else _line(stored))


@app.command("verify")
def verify_log(
    head: Annotated[
        str | None, typer.Option(help="A digest that this command told before: finds a log cut since then")
    ] = None,
) -> None:
    """See that no record was changed, removed, inserted or moved; tell the newest digest."""
    settings = environment.settings(ServiceSettings)
    offsets: list[int] = []
    try:
        stored = list(AuditLog(settings).all())
    except KafkaException as fault:
        raise _unreadable(settings, fault) from fault
    offsets = [one.offset for one in stored]
    seen = audit.verify([one.value for one in stored], head)
    if not seen.is_intact:
        told = "; ".join(
            f"{finding}" + (f" (offset {offsets[finding.number]})" if finding.number < len(offsets) else "")
            for finding in islice(seen.findings, SHOWN)
        )
        more = f"; and {len(seen.findings) - SHOWN} more" if len(seen.findings) > SHOWN else ""
        raise AuditError(
            f"{settings.topics.audit_log} is not what was written: {told}{more}; find out who could write it"
        )
    typer.echo(f"{seen.records} records, each follows from the one before it")
    typer.echo(f"head {seen.head or '-'}   keep it elsewhere; give it as --head next time")


def _line(stored: Stored) -> str:
    record = audit.read(stored.value)
    if record is None:
        return f"offset {stored.offset}  is no audit record: {safe(stored.value, 60)}"
    at = datetime.fromtimestamp(record["at"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    detail = json.dumps(record["detail"], sort_keys=True) if record["detail"] else ""
    text = (
        f"{at}  {record['actor']} ({record['role']}) from {record['from']}  {record['action']} "
        f"{record['target']}  {record['outcome']}  {detail}"
    )
    return safe(text.rstrip().encode())


def _unreadable(settings: ServiceSettings, fault: KafkaException) -> AuditError:
    return AuditError(
        f"{settings.topics.audit_log} at {settings.bootstrap_servers} cannot be read: {say(fault)}; "
        "check the brokers"
    )
