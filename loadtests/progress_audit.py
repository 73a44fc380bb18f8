"""Audits the job's own account: each batch's counts and digest against what its transaction left behind."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from loadtests.oracle import Kind, Record

Batch = tuple[str, int]
"""(query id, batch id)."""


class ProgressAudit:
    """Collects the three output topics by batch, then compares.

    Args:
        ends: (topic, partition) -> first offset that is not audited; batches beyond it are left alone.
    """

    def __init__(self, ends: Mapping[tuple[str, int], int]) -> None:
        self._ends = ends
        self._progress: dict[Batch, dict[str, Any]] = {}
        self._alerts: dict[Batch, list[Record]] = defaultdict(list)
        self._dead_letters: Counter[Batch] = Counter()
        self.problems: list[str] = []
        """What does not agree, in words."""

    def add_progress(self, record: Record) -> None:
        """Take in a record of job-progress."""
        try:
            progress = json.loads(record.value or b"")
            batch = str(progress["query_id"]), int(progress["batch_id"])
            beyond = any(
                part["end_offset"] > self._ends.get((part["topic"], part["partition"]), part["end_offset"])
                for part in progress["partitions"]
            )
        except (ValueError, KeyError, TypeError):
            self.problems.append(f"job-progress offset {record.offset}: not a progress record")
            return
        if beyond:
            return
        if batch in self._progress:
            self.problems.append(f"batch {batch[1]} of query {batch[0]} was written twice")
        self._progress[batch] = progress

    def add_alert(self, record: Record) -> None:
        """Take in a record of fraud-alerts."""
        self._alerts[_batch(record)].append(record)

    def add_dead_letter(self, record: Record) -> None:
        """Take in a record of dead-letters."""
        self._dead_letters[_batch(record)] += 1

    def check(self) -> None:
        """Compare batch by batch, then see that the batches follow each other without a gap."""
        for batch, progress in sorted(self._progress.items()):
            self._check_batch(batch, progress)
        for query in {query for query, _ in self._progress}:
            self._check_sequence(query)
        if len({query for query, _ in self._progress}) > 1:
            self.problems.append("several queries wrote progress: the checkpoint was replaced in between")

    def check_totals(self, kinds: Counter[Kind]) -> None:
        """Compare the sums of all batches with the oracle's counts of transactions."""
        told: Counter[str] = Counter()
        for progress in self._progress.values():
            told.update(progress["counts"])
        for name, expected in (
            ("transactions", kinds[Kind.PASSED] + kinds[Kind.ALERT]),
            ("duplicates", kinds[Kind.DUPLICATE]),
            ("alerts", kinds[Kind.ALERT]),
            ("dead_letters", kinds[Kind.DEAD_LETTER]),
        ):
            if told[name] != expected:
                self.problems.append(f"progress adds up to {told[name]} {name}, the oracle finds {expected}")

    @property
    def late_table_changes(self) -> int:
        """Changes that turned up behind transactions already decided, as the job counted them."""
        return sum(progress["counts"]["late_table_changes"] for progress in self._progress.values())

    def _check_batch(self, batch: Batch, progress: dict[str, Any]) -> None:
        alerts = self._alerts.pop(batch, [])
        counts = progress["counts"]
        for name, found in (("alerts", len(alerts)), ("dead_letters", self._dead_letters.pop(batch, 0))):
            if counts[name] != found:
                self.problems.append(
                    f"batch {batch[1]}: progress tells of {counts[name]} {name}, {found} found"
                )
        digest = hashlib.sha256()
        for alert in sorted(alerts, key=_source):
            digest.update(alert.value or b"")
        if digest.hexdigest() != progress["alerts_digest"]:
            self.problems.append(f"batch {batch[1]}: the alerts have another digest than progress tells")

    def _check_sequence(self, query: str) -> None:
        batches = sorted(batch for name, batch in self._progress if name == query)
        if batches != list(range(batches[0], batches[0] + len(batches))):
            self.problems.append(f"query {query}: batches are missing between {batches[0]} and {batches[-1]}")
        reached: dict[tuple[str, int], int] = {}
        self._check_running_totals(query, batches)
        for batch in batches:
            for part in self._progress[query, batch]["partitions"]:
                place = part["topic"], part["partition"]
                if reached.get(place, part["start_offset"]) != part["start_offset"]:
                    self.problems.append(
                        f"batch {batch}: {place[0]}[{place[1]}] starts at {part['start_offset']}, "
                        f"the batch before ended at {reached[place]}"
                    )
                reached[place] = part["end_offset"]

    def _check_running_totals(self, query: str, batches: list[int]) -> None:
        """Each record's totals are those of the record before it and its own counts."""
        since: int | None = None
        before: Counter[str] = Counter()
        for batch in batches:
            progress = self._progress[query, batch]
            if "totals" not in progress:  # written by an older release
                continue
            total = +Counter(progress["totals"]["counts"])
            if progress["totals"]["since"] == since and total != before + Counter(progress["counts"]):
                self.problems.append(f"batch {batch}: the totals are not those before it and its own counts")
            since, before = progress["totals"]["since"], total


def _batch(record: Record) -> Batch:
    headers = dict(record.headers)
    try:
        return (headers["query_id"] or b"").decode(), int(headers["batch_id"] or b"")
    except (KeyError, ValueError):
        return "", -1


def _source(record: Record) -> tuple[int, int]:
    try:
        source = json.loads(record.value or b"")["source"]
        return source["partition"], source["offset"]
    except (ValueError, KeyError, TypeError):
        return -1, -1
