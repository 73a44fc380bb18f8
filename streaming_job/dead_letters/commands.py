"""`fraud dead-letters`: lists dead letters, and sends their records again, corrected or unchanged."""

import getpass
import json
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from feature_store.utc import moment_of
from streaming_job import environment
from streaming_job.contracts import Reason
from streaming_job.dead_letters import originals
from streaming_job.dead_letters import replay as replaying
from streaming_job.dead_letters.finding import LetterFilter, find
from streaming_job.dead_letters.letter import Letter, LetterError
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.schemas import ledger

EXCERPT = 60
"""Characters of a value in the table."""

app = typer.Typer(no_args_is_help=True, help="List dead letters; send mended ones again.")

Reasons = Annotated[list[str] | None, typer.Option("--reason", help="Only these reasons; repeatable")]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="Only records of these topics; repeatable")]
Since = Annotated[str | None, typer.Option(help="Record arrived at or after: 2026-05-28T20:30 (UTC), or ms")]
Until = Annotated[str | None, typer.Option(help="Record arrived before; same format as --since")]
Offsets = Annotated[
    str | None, typer.Option(help="Only these offsets of dead-letters: PARTITION:FIRST-LAST, e.g. 0:17-42")
]


@app.command("list")
def list_letters(
    reason: Reasons = None,
    topic: Topics = None,
    since: Since = None,
    until: Until = None,
    offsets: Offsets = None,
    limit: Annotated[int, typer.Option(min=1, help="Newest dead letters to show of each partition")] = 1_000,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line")] = False,
    raw: Annotated[
        Path | None, typer.Option(help="Write all matching letters whole to this new file, to be mended")
    ] = None,
) -> None:
    """List the records that could not be decided, and why; card ids and card numbers are masked.

    A --raw file contains the records whole and unmasked. If a key or value is too large for a dead letter, it
    is fetched from the log.

    Example: fraud dead-letters list --reason malformed_json --raw letters.jsonl
    """
    settings = environment.settings(LetterSettings)
    letters_found = find(settings, _filter(reason, topic, since, until, offsets))
    if raw is not None:
        count, gone = _write(raw, originals.with_payloads(settings, letters_found))
        typer.echo(f"{count} dead letters are in {raw}, with card numbers unmasked: keep it safe")
        if gone:
            typer.echo(
                f"{originals.describe_gone(gone)}; their lines have only the size and SHA-256 of what is "
                "gone, and can be sent again only once you have filled it in",
                err=True,
            )
        return
    shown: dict[int, list[Letter]] = {}
    counts: Counter[str] = Counter()
    for letter in letters_found:
        counts[letter.reason] += 1
        newest = shown.setdefault(letter.position[1], [])
        newest.append(letter)
        del newest[:-limit]
    letters = [letter for partition in sorted(shown) for letter in shown[partition]]
    if as_json:
        for letter in letters:
            typer.echo(json.dumps(letter.shown()))
    else:
        _print(letters, counts)


@app.command()
def replay(
    file: Annotated[Path | None, typer.Argument(help="Written by `list --raw`; key and value mended")] = None,
    reason: Reasons = None,
    topic: Topics = None,
    since: Since = None,
    until: Until = None,
    offsets: Offsets = None,
    again: Annotated[bool, typer.Option(help="Also send letters that have been sent before")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only report what would be sent")] = False,
) -> None:
    """Send the records of dead letters again: corrected ones of a file, or those that the options select.

    All of them are sent, or none. Letters that have been sent before are left out, unless --again is given.
    If a key or value is too large for a dead letter, it is fetched from the log.

    Example: fraud dead-letters replay letters.jsonl
    """
    settings = environment.settings(LetterSettings)
    selection = (reason, topic, since, until, offsets)
    if (file is None) == (not any(selection)):
        raise LetterError("give either a FILE of `list --raw`, or options that select letters, not both")
    selected = _read(file) if file else find(settings, _filter(*selection))
    letters = list(originals.with_payloads(settings, selected))
    originals.require_whole(letters)
    schemas = ledger.read(settings, "fraud-dead-letters")
    replaying.check(letters, settings, schemas)
    report = replaying.send(
        settings, letters, by=getpass.getuser(), again=again, dry=dry_run, schemas=schemas
    )
    typer.echo(json.dumps({"would_send" if dry_run else "sent": report.sent, "sent_before": report.repeated}))


def _filter(
    reasons: list[str] | None,
    topics: list[str] | None,
    since: str | None,
    until: str | None,
    offsets: str | None,
) -> LetterFilter:
    unknown = set(reasons or ()) - set(Reason)
    if unknown:
        raise LetterError(f"unknown reason: {', '.join(sorted(unknown))}; use {', '.join(Reason)}")
    partition, first, end = _range(offsets) if offsets else (None, 0, None)
    return LetterFilter(
        frozenset(reasons or ()),
        frozenset(topics or ()),
        _moment(since),
        _moment(until),
        partition,
        first,
        end,
    )


def _moment(text: str | None) -> int | None:
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise LetterError(f"{text!r} is no time; give for example 2026-05-28T20:30, in UTC") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _range(text: str) -> tuple[int, int, int]:
    try:
        partition, offsets = text.split(":")
        first, _, last = offsets.partition("-")
        parsed = int(partition), int(first), int(last or first) + 1
    except ValueError:
        raise LetterError(
            f"{text!r} is no range of offsets; give PARTITION:FIRST-LAST, e.g. 0:17-42"
        ) from None
    return parsed


def _write(path: Path, letters: Iterator[Letter]) -> tuple[int, list[Letter]]:
    """Write letters to a new file; return their number, and those that are not whole."""
    try:
        # private, and never over an existing file, which somebody may have corrected
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as fault:
        raise LetterError(f"{path} cannot be created ({fault.strerror}); name another file") from fault
    count, incomplete = 0, []
    with os.fdopen(descriptor, "w") as output:
        for letter in letters:
            output.write(letter.raw() + "\n")
            count += 1
            if not letter.is_whole:
                incomplete.append(letter)
    return count, incomplete


def _read(path: Path) -> Iterator[Letter]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as fault:
        raise LetterError(f"{path} cannot be read ({fault}); give a file of `list --raw`") from fault
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield Letter.from_raw(line)
            except LetterError as fault:
                raise LetterError(f"{path}, line {number}: {fault}") from None


def _print(letters: list[Letter], counts: Counter[str]) -> None:
    table = Table("dead letter", "reason", "record", "arrived", "what is wrong", "value", box=None)
    for letter in letters:
        shown = letter.shown()
        if letter.value_left_out is not None:
            value = f"{letter.value_left_out.size} bytes, too large: see --raw"
        elif letter.value is not None:
            value = f"{len(letter.value)} bytes: {shown['value'][:EXCERPT]}"
        else:
            value = ""
        arrived = moment_of(letter.arrival)
        table.add_row(
            letter.name, letter.reason, f"{letter.topic}/{letter.partition}/{letter.offset}",
            f"{arrived:%Y-%m-%d %H:%M:%S}", shown["detail"], value,
        )  # fmt: skip
    console = Console(markup=False, highlight=False)
    if letters:
        console.print(table)
    by_reason = ", ".join(f"{reason} {count:,}" for reason, count in counts.most_common())
    console.print(f"{counts.total():,} dead letters{': ' if by_reason else ''}{by_reason}")
