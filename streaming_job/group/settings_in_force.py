"""The settings that a key group's state and output were made with. Pure.

The transactions between P and Q are decided a second time, in silence; with other settings they would be
decided otherwise than the output says. So the state keeps its settings (`JobSettings.decisive`), and other
values are taken over only while P = Q, in an epoch of their own, which decides nothing. Progress records name
the settings, too: a restored older state must not decide again what was decided with other ones. Both also
name the group's Kafka transaction since which the values hold: values may be changed, and changed back.
"""

from collections.abc import Mapping
from typing import Any

from feature_store.state.journal import Meta
from streaming_job.log.records import Offsets
from streaming_job.progress import last_record
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.settings import as_text

SETTINGS = "settings"
"""Name in `Meta.extra` and in progress records."""
SINCE = "since_commit"
"""Name beside the values: number of the group's last Kafka transaction before the values were taken over."""
Values = Mapping[str, Any]


def store_first(meta: Meta, settings: Values) -> None:
    """Store the settings of a new state in `meta`."""
    meta.extra[SETTINGS] = {**settings, SINCE: 0}


def are_stored(meta: Meta, settings: Values) -> bool:
    """Return whether the state was made with these settings."""
    return not _changes(meta.extra[SETTINGS], settings)


def take_over(meta: Meta, settings: Values, state: Offsets, output: Offsets, commit_id: int) -> list[str]:
    """Store other settings in `meta`, and return the changes as text.

    Args:
        meta: of the state.
        settings: the new settings.
        state: P by partition of all inputs.
        output: Q by partition of all inputs.
        commit_id: number of the group's last Kafka transaction.

    Raises:
        CheckpointError: P is behind Q.
    """
    before: Values = meta.extra[SETTINGS]
    changes = _changes(before, settings)
    if _is_behind(state, output):
        raise CheckpointError(
            f"{', '.join(changes)}: records that were decided with the former values have to be decided "
            f"again; start the job with {_variables(before, settings)}, stop it with SIGTERM once it has "
            "caught up, then change the settings"
        )
    meta.extra[SETTINGS] = {**settings, SINCE: commit_id}
    return changes


def require_same(meta: Meta, state: Offsets, output: Offsets, record: last_record.Record | None) -> None:
    """Check that what has to be decided again was decided with the same settings.

    Args:
        meta: of the state, whose settings are those of this start.
        state: P by partition of all inputs.
        output: Q by partition of all inputs.
        record: the group's last progress record.

    Raises:
        CheckpointError: the output was written with other settings, after the state was stored.
    """
    stored: Values = meta.extra[SETTINGS]
    # a topic that this start does not read, of schemas or a retired one, has nothing to be decided again
    output = {tp: offset for tp, offset in output.items() if tp in state}
    # the first record after a takeover names none: what it starts from, no settings of this job have decided
    if record is not None and record[SETTINGS] and record[SETTINGS] != stored and _is_behind(state, output):
        changes = ", ".join(_changes(stored, record[SETTINGS])) or "undone since"
        raise CheckpointError(
            f"the checkpoint is older than a change of settings ({changes}), so it cannot decide again what "
            "was decided since; restore a copy made after the change, or have an empty one take over "
            "(docs/operations.md)"
        )


def _is_behind(state: Offsets, output: Offsets) -> bool:
    return any(state.get(tp, 0) < offset for tp, offset in output.items())


def _changes(before: Values, after: Values) -> list[str]:
    names = {**before, **after}.keys() - {SINCE}
    return [
        f"FRAUD_{name.upper()} was {as_text(before.get(name))}, is {as_text(after.get(name))}"
        for name in sorted(names)
        if before.get(name) != after.get(name)
    ]


def _variables(values: Values, others: Values) -> str:
    names = [name for name in sorted(values.keys() - {SINCE}) if values[name] != others.get(name)]
    return " ".join(f"FRAUD_{name.upper()}={as_text(values[name])}" for name in names)
