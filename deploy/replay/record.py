"""The record of a replay: what was asked for, and how far it has come; a file that is replaced as a whole.

Each command can be killed at any point: it writes what it is about to do into the record before it does it,
and each of its steps may be repeated.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from deploy.local.files import replace_json
from deploy.local.processes import Server
from feature_store.errors import FraudError
from streaming_job.contracts.topic import Role
from streaming_job.contracts.topics import TABLE, Topics
from streaming_job.settings import JobSettings


class ReplayError(FraudError):
    """A replay cannot be planned, started, compared, switched or dropped.

    The message says what to do; docs/replay.md describes the commands, each of which may be repeated.
    """


FILE = "replay.json"
NAME = re.compile("(?!replay-)[a-z0-9][a-z0-9-]{0,39}")
"""Without the prefix of a second job's checkpoint: a successor's checkpoint has only the name after it."""
OWN = tuple(name for name, row in TABLE.items() if row.role in (Role.OUTPUT, Role.STATE, Role.PROGRESS))
"""The topics that every replay has for itself, by their fields of `Topics`."""


@dataclass(frozen=True)
class Replay:
    """A replay of a live job."""

    name: str
    job_id: str
    """Id of the live job."""
    checkpoint: str
    """Checkpoint of the live job, as the next two at the first start: a switch changes these settings."""
    live_key_groups: int
    rollouts: str
    """Topic of the live rollouts."""
    key_groups: int
    ends: Mapping[str, int]
    """End of the range, by partition of the transactions."""
    start_from: str = ""
    """Copy of a checkpoint of the live job, whose state is the first; empty: the beginning of the log."""
    archive: str = ""
    """Archive in which the log begins; empty: it begins where the topics do."""
    release: str = ""
    """Program `fraud` of another release; empty: this one."""
    label_delay_ms: int | None = None
    """Label delay of its merchant facts, instead of the live job's, which may keep none; None: as live."""
    facts: str = ""
    """Topic of the live merchant facts; set as `checkpoint` is."""
    live_label_delay_ms: int | None = None
    """Label delay of the live merchant facts, None: the job keeps none; set as `checkpoint` is."""
    is_partial: bool = False
    """Whether the log had lost its beginning, which was accepted."""
    rollout: Mapping[str, Any] | None = None
    """Model and policy that decide instead of the live rollouts: `model`, `policy` and `created_at`."""
    process: tuple[int, float] | None = None
    """Process of the second job, and its start time; it may have ended."""
    is_done: bool = False
    """Whether the range was decided to its end."""
    rate: float = 0.0
    """Transactions per second of the last run that was long enough to tell; 0.0: none was."""
    live_query: str = ""
    """Query of the live job's checkpoint; set by the first switch."""
    successor_query: str = ""
    """Query of the successor's checkpoint; set by a switch, but not by one of an older release."""
    is_switched: bool = False
    """Whether the last act was a switch, and not the way back."""
    is_spent: bool = False
    """Whether a successor had continued its facts when the way back was begun."""
    file: Path = field(default=Path(), compare=False)

    @property
    def range(self) -> dict[int, int]:
        """End of the range, by partition."""
        return {int(part): end for part, end in self.ends.items()}

    @property
    def server(self) -> Server | None:
        """The process of the second job, which may have ended; None: it was never started."""
        return Server(*self.process, marker="run") if self.process is not None else None

    @property
    def has_own_rollouts(self) -> bool:
        """Whether it reads rollouts of its own instead of the live job's."""
        return self.rollout is not None

    def original(self, live: JobSettings) -> JobSettings:
        """Return the settings of the live job before any switch."""
        return live.model_copy(
            update={
                "topics": live.topics.model_copy(
                    update={
                        "model_rollouts": self.rollouts,
                        "merchant_facts": self.facts or live.topics.merchant_facts,
                    }
                ),
                **(_facts(self.live_label_delay_ms) if self.label_delay_ms is not None else {}),
                "checkpoint": self.checkpoint,
                "key_groups": self.live_key_groups,
                "predecessor": "",
                "predecessor_checkpoint": "",
            }
        )

    def changed_facts(self, live: JobSettings) -> JobSettings:
        """Return the settings of the live job with the merchant facts of the replay."""
        change = {} if self.label_delay_ms is None else _facts(self.label_delay_ms)
        return live.model_copy(update=change)

    @property
    def own_fields(self) -> tuple[str, ...]:
        """The topics that it has for itself, by their fields of `Topics`."""
        return (*OWN, "model_rollouts") if self.has_own_rollouts else OWN

    def topics(self, live: Topics) -> Topics:
        """Return the topics that the second job reads and writes."""
        return live.renamed(lambda name: f"{name}-replay-{self.name}", but=TABLE.keys() - {*self.own_fields})

    def settings(self, live: JobSettings) -> JobSettings:
        """Return the settings of the second job."""
        return self.changed_facts(live).model_copy(
            update={
                "job_id": f"{live.job_id}-replay-{self.name}",
                "topics": self.topics(live.topics),
                "checkpoint": self.second_checkpoint,
                "work_dir": self.file.parent / "work",
                "key_groups": self.key_groups,
                "predecessor": "",
                "predecessor_checkpoint": self.start_from,
                "log_archive": self.archive,
                # from the beginning of the log, all of a topic that the cards have left would come too late
                "retired_transactions": live.retired_transactions if self.start_from else (),
                "drain": False,
                "epoch_port": 0,
                "ui_port": 0,
            }
        )

    def successor(self, live: JobSettings) -> JobSettings:
        """Return the settings of the job that takes the live output over with the state of the replay."""
        own, changed = self.topics(live.topics), self.changed_facts(live)
        topics = {"model_rollouts": own.model_rollouts}
        if changed.merchant_facts:  # its facts continue those of the replay
            topics["merchant_facts"] = own.merchant_facts
        return changed.model_copy(
            update={
                "topics": live.topics.model_copy(update=topics),
                "checkpoint": self.successor_checkpoint,
                "key_groups": self.key_groups,
                "predecessor": self.live_query,
                "predecessor_checkpoint": self.settings(live).checkpoint,
                "drain": False,
            }
        )

    @property
    def second_checkpoint(self) -> str:
        """The checkpoint of the second job."""
        return f"{self.checkpoint}-replay-{self.name}"

    @property
    def successor_checkpoint(self) -> str:
        """The checkpoint of the job that takes the live output over."""
        return f"{self.checkpoint}-{self.name}"

    @property
    def checkpoints(self) -> set[str]:
        """The checkpoints that it writes to."""
        return {self.second_checkpoint, self.successor_checkpoint}

    def saved(self, **changes: Any) -> "Replay":
        """Change fields, write the file, and return the changed record."""
        changed = replace(self, **changes)
        content = {name: value for name, value in asdict(changed).items() if name != "file"}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        replace_json(self.file, content)
        return changed


def _facts(label_delay_ms: int | None) -> dict[str, Any]:
    """Return the settings of merchant facts."""
    if label_delay_ms is None:
        return {"merchant_facts": False}
    return {"merchant_facts": True, "label_delay_ms": label_delay_ms}


def file_of(work_dir: Path, name: str) -> Path:
    """Return the file of a replay.

    Raises:
        ReplayError: it cannot be a name.
    """
    if NAME.fullmatch(name) is None:
        raise ReplayError(
            f"{name!r} cannot be part of topics' names; give small letters, digits and hyphens, 40 at most, "
            "not beginning with replay-"
        )
    return work_dir / "replays" / name / FILE


def find(work_dir: Path, name: str) -> Replay | None:
    """Return the record of a replay; None if there is none.

    Raises:
        ReplayError: the name is malformed, or the file is damaged.
    """
    file = file_of(work_dir, name)
    if not file.exists():
        return None
    try:
        fields = json.loads(file.read_text())
        process = fields["process"] and tuple(fields["process"])
        return Replay(**{**fields, "process": process, "file": file})
    except (ValueError, TypeError, KeyError) as fault:
        raise ReplayError(
            f"{file} is damaged ({fault}); restore it from a copy, or delete its directory, the topics and "
            f"the checkpoints that end with -{name}, unless they are live"
        ) from fault


def load(live: JobSettings, name: str) -> tuple[Replay, JobSettings]:
    """Return the record of a replay of the live job, and the job's settings before any switch.

    Raises:
        ReplayError: there is none, it is damaged, or it is a replay of another job.
    """
    record = find(live.work_dir, name)
    if record is None:
        raise ReplayError(f"there is no replay {name}; `fraud replay status` lists all")
    if record.job_id != live.job_id:
        raise ReplayError(f"{name} is a replay of job {record.job_id}; correct FRAUD_JOB_ID")
    return record, record.original(live)


def names(work_dir: Path) -> Iterator[str]:
    """Yield the names of all replays."""
    for file in sorted((work_dir / "replays").glob(f"*/{FILE}")):
        yield file.parent.name
