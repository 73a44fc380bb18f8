"""Registry of the reason codes of verdicts and checks; docs/runbook.md has an entry for each."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Verdict on an input partition or on the whole job, in order of severity."""

    IDLE = "IDLE"
    OK = "OK"
    WARN = "WARN"
    BLOCKED = "BLOCKED"
    STALL = "STALL"
    REWIND = "REWIND"
    STOP = "STOP"
    UNKNOWN = "UNKNOWN"
    """Only for the whole job: the sidecar lacks the data that it needs to judge."""

    @property
    def severity(self) -> int:
        """Rank of the verdict; greater is worse."""
        return list(Verdict).index(self)

    @property
    def is_fine(self) -> bool:
        """Whether no action is needed."""
        return self in (Verdict.IDLE, Verdict.OK)


OF_PARTITIONS = tuple(verdict for verdict in Verdict if verdict is not Verdict.UNKNOWN)


@dataclass(frozen=True)
class Code:
    """Reason code of a verdict."""

    name: str
    verdict: Verdict
    meaning: str
    """One sentence."""


REGISTRY = {
    code.name: code
    for code in (
        # of one input partition
        Code("idle", Verdict.IDLE, "Nothing waits, and nothing has come for a while."),
        Code("keeping_up", Verdict.OK, "Records are taken as fast as they come."),
        Code("catching_up", Verdict.OK, "Records wait for longer than usual, and the wait gets shorter."),
        Code("falling_behind", Verdict.WARN, "The job reads, and the wait does not get shorter."),
        Code("loading_tables", Verdict.WARN, "A key group reads its tables, and does not decide yet."),
        Code("open_transaction", Verdict.BLOCKED, "Records wait for a producer to end its transaction."),
        Code("waiting_for_transactions", Verdict.OK, "Labels wait until earlier transactions are decided."),
        Code("not_moving", Verdict.STALL, "The key group commits, but its position does not move."),
        Code("position_went_back", Verdict.REWIND, "The job's position in the partition went back."),
        Code("no_commits", Verdict.STOP, "Records wait, and the key group that reads them commits nothing."),
        Code(
            "log_behind_output",
            Verdict.STOP,
            "The partition ends before the offset up to which the job has read it: records are lost.",
        ),
        Code("never_committed", Verdict.STOP, "Records wait in a partition that has never had a commit."),
        # of the whole job
        Code("broker_unreachable", Verdict.UNKNOWN, "The broker does not answer the sidecar."),
        Code("progress_incomplete", Verdict.UNKNOWN, "The job's progress has not been read to its end."),
        Code("topic_missing", Verdict.STOP, "An input topic does not exist."),
        Code("no_progress", Verdict.STOP, "The job has never written progress."),
        Code("group_missing", Verdict.STOP, "A key group has never written progress."),
        Code("group_silent", Verdict.STOP, "A key group writes no progress, not even that it is idle."),
        Code("group_stalled", Verdict.STALL, "A key group leaves transactions waiting and takes none."),
        Code("feed_silent", Verdict.WARN, "Debezium sends no heartbeat: profiles are no longer fed."),
        Code("checkpoint_old", Verdict.WARN, "Epochs do not end: the state is not saved."),
        Code("mostly_dead_letters", Verdict.WARN, "Most records of an input are dead letters."),
        Code("model_fails", Verdict.WARN, "The model gives no score for most transactions."),
        Code("foreign_facts", Verdict.WARN, "Another program writes to the topic of merchant facts."),
        Code("retired_topic", Verdict.WARN, "Transactions still come to a topic that the job has left."),
        Code("rollouts_set_aside", Verdict.WARN, "A rollout cannot be used; the last good one decides."),
    )
}
"""Name -> code."""


def link(name: str, runbook: str) -> str:
    """Return the link to a code's entry in the runbook."""
    return f"{runbook}#{REGISTRY[name].name}"
