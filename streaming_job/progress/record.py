"""The parts of a progress record that describe one Kafka transaction of a key group. Pure."""

import hashlib
from collections.abc import Sequence
from itertools import chain
from typing import Any

from streaming_job.contracts.topics import ACCEPTED, COUNTED, DIGESTED
from streaming_job.log.losses import FIELD, Losses
from streaming_job.log.partitioner import Layout
from streaming_job.progress.outcome import LATENCY_MS, LATENESS_MS, PROFILE_AGE_MS, SCORES, Outcome, histogram

RECORD_COUNTS = tuple(chain.from_iterable(ACCEPTED.values()))
"""Counts of input records; with the number of dead letters they add up to the count `records`. Records of
the topic `merchant-facts` are in none of them."""
ROLLOUT_TOPICS = "rollout_topics"
"""Name in progress records of group 0, and in `job.json`."""
OPTIONAL = ("schemas", "labels", "late_facts", "foreign_facts")
"""Counts that are left out if they are 0. Of jobs with framed transactions: schemas. Of jobs that keep
merchant facts: labels whose transactions were found; facts that may take effect late, because they came after
a promise; and records of the topic `merchant-facts` that no job wrote."""
PLAIN_COUNTS = (
    *(name for name in RECORD_COUNTS if name not in OPTIONAL),
    "conflicting_repetition",
    "late",
    "late_table_changes",
    "ignored_profile_changes",
    "missing_profile",
    "scoring_failures",
)


def fixed_fields(
    layout: Layout, label_delay_ms: int | None, losses: Losses, rollout_topics: Sequence[str]
) -> dict[str, Any]:
    """Return the fields of what a job's first start has fixed; what there is not is left out."""
    fields = {"label_delay_ms": label_delay_ms, FIELD: losses.to_json() or None}
    given = {name: value for name, value in fields.items() if value is not None}
    return {"layout": layout.to_json(), ROLLOUT_TOPICS: rollout_topics, **given}


def digests_of(outcome: Outcome) -> dict[str, str]:
    """Return the field `digests` of the progress record."""
    digests = {}
    for topic, name in DIGESTED.items():
        digest = hashlib.sha256()
        for record in outcome.records[topic]:
            digest.update(record.value)
        digests[name] = digest.hexdigest()
    return digests


def counts_of(outcome: Outcome) -> dict[str, int]:
    """Return the field `counts` of the progress record."""
    counts = {name: outcome.counts[name] for name in PLAIN_COUNTS}
    counts |= {name: outcome.counts[name] for name in OPTIONAL if outcome.counts[name]}
    # not computed from offsets, because Kafka's transaction markers have offsets, too
    return {
        "records": sum(outcome.counts[name] for name in RECORD_COUNTS) + len(outcome.dead_letters),
        **counts,
        **{name: len(outcome.records[topic]) for topic, name in COUNTED.items()},
    }


def dead_letters_by(outcome: Outcome) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of dead letters by reason, and by topic of their records."""
    by_reason: dict[str, int] = {}
    by_topic: dict[str, int] = {}
    for letter in outcome.dead_letters:
        by_reason[letter.reason.value] = by_reason.get(letter.reason.value, 0) + 1
        by_topic[letter.topic] = by_topic.get(letter.topic, 0) + 1
    return by_reason, by_topic


def histograms_of(outcome: Outcome, now: int) -> dict[str, dict[str, Any]]:
    """Return the progress record's histograms by name (`totals.HISTOGRAMS`), each `{le, counts, sum}`.

    Args:
        now: wall clock just before the commit, ms.
    """
    sums, latencies = outcome.sums, now - outcome.arrivals
    return {
        "lateness_ms": {"le": LATENESS_MS, "counts": outcome.lateness, "sum": sums["lateness_ms"]},
        "latency_ms": {
            "le": LATENCY_MS,
            "counts": histogram(latencies, LATENCY_MS),
            "sum": int(latencies.sum()),
        },
        "profile_age_ms": {
            "le": PROFILE_AGE_MS,
            "counts": outcome.profile_ages,
            "sum": sums["profile_age_ms"],
        },
        "scores": {"le": SCORES, "counts": outcome.scores, "sum": sums["scores"]},
    }
