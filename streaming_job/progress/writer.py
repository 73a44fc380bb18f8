"""The writer of a key group's progress records; totals continue from the group's last committed record.

Each record contains the totals, which become visible with the alerts that they count; the state holds only a
copy of the last record. The alerts of each Kafka transaction wait while its record is encoded, so encoding
has to be cheap: totals are updated in place, and each value is encoded once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from feature_store.catalogue import IDENTITIES
from feature_store.release import RELEASE
from streaming_job.log.records import Offsets
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.record import counts_of, dead_letters_by, digests_of, histograms_of
from streaming_job.progress.totals import Totals, add_counts
from streaming_job.progress.watermarks import Partitions

FEATURES_EVERY_MS = 10_000
"""The first record of each interval of this length has the feature counts, which are larger than all
other fields together."""
_NO_SIZES = {"cards": 0, "cards_without_profile": 0, "events": 0, "local_bytes": 0}


class GroupProgress:
    """The progress of a key group: numbers its Kafka transactions, and encodes the record of each."""

    def __init__(
        self,
        job_id: str,
        query_id: str,
        key_group: int,
        key_groups: int,
        last: Mapping[str, Any] | None,
        commit_id: int = 0,
        computed: Sequence[str] = IDENTITIES,
        fixed: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Continue after the group's last commit.

        Args:
            query_id: id of the query in Spark's checkpoint.
            last: the group's newest record (`last_record.newest`), decoded; None: totals begin at 0.
            commit_id: number of the group's last Kafka transaction according to its committed offsets; used
                if greater than that of `last`.
            computed: features that models may use, name:version.
            fixed: what the first start has fixed (`record.fixed_fields`).
            settings: those in force (`group.settings_in_force`).
        """
        self._names: dict[str, Any] = {
            "schema_version": 2,
            "job_id": job_id,
            "query_id": query_id,
            "release": RELEASE,
            "key_group": key_group,
            "key_groups": key_groups,
            "settings": settings or {},
        }
        if key_group == 0:  # only group 0 reports what is the same for all groups
            self._names |= {"features": computed, **(fixed or {})}
        last = last or {}
        self.commit_id = max(commit_id, last.get("commit_id", 0))
        """Number of the group's last Kafka transaction; 0 before the first."""
        self._totals = Totals.from_json(last["totals"]) if last else Totals()
        self._partitions = Partitions(last.get("partitions", ()))
        # the next record repeats those of these values that its outcome does not set
        self._sizes: Mapping[str, int] = {**_NO_SIZES, **last.get("state", {})}
        self._rollout = {name: last.get(name) for name in ("rollout_id", "model")}
        self._applied: Any = last.get("applied", [])
        self._set_aside: Mapping[str, str] = last.get("rollouts_set_aside", {})
        self._silent_before: Sequence[Mapping[str, Any]] = last.get("silent_before", ())
        if "takeover" in last:
            self._names["takeover"] = last["takeover"]

    def record(
        self,
        outcome: Outcome,
        *,
        epoch: int,
        started_at: int,
        now: int,
        starts: Offsets,
        ends: Offsets,
        transactions_topic: str,
        table_lag: Mapping[str, int],
    ) -> bytes:
        """Encode the next record and update the totals; call it exactly once for each Kafka transaction.

        If the Kafka transaction fails for good, a new object has to continue from the last committed record.

        Args:
            outcome: outcome of the records between `starts` and `ends`.
            started_at: wall clock at the previous commit, or when the group was opened, ms.
            now: wall clock just before the commit, ms.
            starts: by partition: end offset of the previous Kafka transaction; without an entry it is 0.
            ends: by partition (the group's partitions of the transactions, all of the tables): the first
                offset not read.
            transactions_topic: topic to whose partitions `outcome.partitions` refers.
            table_lag: by topic: records still to be read before the group decides; empty once the tables are
                loaded.

        Returns:
            JSON of contract job-progress.v2.
        """
        counts, (by_reason, by_topic) = counts_of(outcome), dead_letters_by(outcome)
        histograms = histograms_of(outcome, now)
        rebuilds = outcome.counts["rebuilds"]
        totals = self._totals
        totals.since = totals.since if totals.commits else started_at
        totals.commits += 1
        add_counts(totals.counts, counts)
        add_counts(totals.dead_letters, by_reason)
        add_counts(totals.dead_letters_by_topic, by_topic)
        add_counts(totals.rules, outcome.rules)
        for name, histogram in histograms.items():
            totals.histograms[name].add(histogram["le"], histogram["counts"], histogram["sum"])
        totals.elapsed_ms += now - started_at
        add_counts(totals.phases_ms, outcome.phases)
        totals.rebuilds += rebuilds
        totals.trials.add(outcome.trials)
        totals.trials.keep_newest()
        self._applied = outcome.applied or self._applied
        self.commit_id += 1
        self._sizes = outcome.sizes or self._sizes
        if outcome.rollout is not None:
            self._rollout = _rollout(outcome.rollout)
        if outcome.set_aside is not None:
            self._set_aside = {str(offset): reason for offset, reason in outcome.set_aside.items()}
        fields = {
            **self._names,
            "commit_id": self.commit_id,
            "epoch": epoch,
            "started_at": started_at,
            "written_at": now,
            "counts": counts,
            "dead_letters_by_reason": by_reason,
            "dead_letters_by_topic": by_topic,
            "alerts_by_rule": outcome.rules,
            "digests": digests_of(outcome),
            "trials": outcome.trials.to_json(),
            "applied": self._applied,
            **histograms,
            "phases_ms": {name: round(ms, 3) for name, ms in outcome.phases.items()},
            "state": {**self._sizes, "rebuilds": rebuilds},
            **self._rollout,
            "rollouts_set_aside": self._set_aside,
            "table_lag": table_lag,
            "partitions": self._partitions.advance(
                starts, ends, transactions_topic, outcome.partitions, outcome.newest, now
            ),
            "totals": totals.to_json(),
        }
        if self._silent_before:
            if any(
                # a start without the topic of schemas passes nothing there
                part["offset"] > ends.get((part["topic"], part["partition"]), part["offset"])
                for home in self._silent_before
                for part in home["offsets"]
            ):
                fields["silent_before"] = self._silent_before
            else:  # this group has passed the output of its predecessor
                self._silent_before = ()
        if now // FEATURES_EVERY_MS != started_at // FEATURES_EVERY_MS:
            fields["feature_counts"] = outcome.feature_counts()
        return orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)


def _rollout(deciding: Mapping[str, Any]) -> dict[str, Any]:
    ref = deciding["model"]
    model = None if ref is None else {"name": ref.name, "version": ref.version, "digest": ref.digest}
    return {"rollout_id": deciding["rollout_id"], "model": model}
