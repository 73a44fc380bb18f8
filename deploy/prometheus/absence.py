"""Rules that tell of metrics that are not there: a rule over such a metric would keep quiet for ever.

Made of the other rule files: each metric that they use gets one. `python -m deploy.prometheus.absence`
writes the file.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deploy.prometheus import RULES

FILE = RULES / "absence.yml"
JOB = "job, instance"
_HEAD = """\
# Made by `python -m deploy.prometheus.absence` from the other files; do not change it by hand.
# A rule over a metric that is not there keeps quiet for ever, so each metric that a rule uses has one here.
groups:
  - name: fraud-absence
    rules:
"""
_RULE = """\
      - alert: FraudMetricAbsent
        expr: >-
          {witness}
          unless on ({labels}) {metric}
        for: {wait}
        labels: {{severity: ticket, metric: {metric}}}
        annotations:
          summary: "{{{{ $labels.instance }}}} does not export {metric}"
          description: Rules and panels over it are blind.
          runbook_url: docs/runbook.md#metric_absent
"""


@dataclass(frozen=True)
class Witness:
    """What shows that a metric should be there."""

    expression: str
    """A vector; where it has a sample, the metric must have one with the same `labels`."""
    labels: str = JOB
    wait: str = "5m"


ALWAYS = Witness('up{job="card-fraud"} == 1')
"""As long as the sidecar answers."""


def once(metric: str) -> Witness:
    """What has been there within six hours: it depends on the installation whether it is there at all."""
    was_there = f"group by (job, instance) (last_over_time({metric}[6h]))"
    return Witness(f"{was_there} and on (job, instance) up == 1")


_OPEN_TRIAL = 'fraud_rollout_phase{fraud_rollout_phase=~"shadow|canary"} == 1'
_PLACE = "job, instance, topic, partition"
_NOT_IDLE = f"(fraud_partition_watermark_age_seconds and on ({_PLACE}) fraud_partition_idle == 0)"
_SEVERE = 'fraud_verdict{fraud_verdict=~"STOP|STALL"} == 1'
WITNESSES = {
    # of an installation with an audit, with a feed of profiles
    **{
        f"fraud_audit_{name}": once(f"fraud_audit_{name}")
        for name in (
            "missing_total",
            "duplicated_total",
            "unexpected_total",
            "different_total",
            "timestamp_seconds",
        )
    },
    "fraud_profile_feed_age_seconds": once("fraud_profile_feed_age_seconds"),
    "fraud_profile_feed_timestamp_seconds": once("fraud_profile_feed_timestamp_seconds"),
    # of what may not have happened yet
    "fraud_dead_letters_total": once("fraud_dead_letters_total"),
    "fraud_partition_event_time_timestamp_seconds": once("fraud_partition_event_time_timestamp_seconds"),
    "fraud_group_epoch_age_seconds": once("fraud_group_epoch_age_seconds"),
    # of what comes and goes with something else
    "fraud_guard_verdict": Witness(_OPEN_TRIAL, f"{JOB}, rollout_id", "15m"),
    "fraud_rollout_phase": Witness("fraud_rollout_applied_seq", f"{JOB}, rollout_id"),
    "fraud_rollout_applied_seq": Witness("fraud_rollout_phase", f"{JOB}, rollout_id"),
    "fraud_watermark_age_seconds": Witness(_NOT_IDLE),
    "fraud_reason_since_timestamp_seconds": Witness(_SEVERE),
}
"""What is not there always; ALWAYS holds for the others."""


def rules(file: Path) -> list[dict[str, Any]]:
    """All rules of a file, in their order."""
    return [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def used() -> list[str]:
    """Names of the exported metrics that the other files' expressions use, in order of name."""
    found: set[str] = set()
    for file in sorted(RULES.glob("*.yml")):
        if file.name != FILE.name:
            for rule in rules(file):
                # a state set has a label of its own name; a recorded metric has a colon before its name
                found |= set(re.findall(r"(?<![:\w])fraud_\w+", rule["expr"]))
    return sorted(found)


def text() -> str:
    """The file."""
    made = []
    for metric in used():
        witness = WITNESSES.get(metric, ALWAYS)
        made.append(
            _RULE.format(metric=metric, witness=witness.expression, labels=witness.labels, wait=witness.wait)
        )
    return _HEAD + "".join(made)


if __name__ == "__main__":
    FILE.write_text(text())
