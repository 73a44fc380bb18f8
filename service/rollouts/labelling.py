"""The rollouts whose alerts are counted by label: those with a guard that needs labels. Pure."""

from models.errors import GuardError
from models.guards import policy
from models.rollouts.events import Type
from models.rollouts.state import Trial
from service.precision.trial import LabelledTrial
from service.rollouts.assessment import is_watched
from service.rollouts.history import History

ENDS = frozenset({Type.BREACHED, Type.ROLLED_BACK, Type.PROMOTED})
"""Types of the events after which a rollout's challengers no longer score transactions."""


def running(history: History) -> LabelledTrial | None:
    """Return the open rollout.

    None if no rollout is open, its challengers do not score transactions, or `labelled_trial` returns None.
    """
    trial = history.line.open_trial
    return labelled_trial(history, trial) if trial is not None and is_watched(trial) else None


def labelled_trial(history: History, trial: Trial) -> LabelledTrial | None:
    """Return a rollout's challengers and the time in which they score transactions.

    None before the rollout's `shadow_started`, if no guard needs labels, or if the guards cannot be read.
    """
    try:
        if not policy.read(trial.guards).need_labels:
            return None
    except GuardError:  # guards of another release: the assessment reports them
        return None
    latest, since, until = 0, None, None
    for entry in history.all_accepted:
        # events take effect in log order, even if broker clocks make a later event look older
        latest, event = max(latest, entry.timestamp), entry.event
        is_own = event.rollout_id == trial.rollout_id
        if since is None:
            since = latest if is_own and event.type is Type.SHADOW_STARTED else None
        elif is_own and event.type in ENDS:
            until = latest
            break
    if since is None:
        return None
    names = tuple(challenger.name for challenger in trial.challengers)
    return LabelledTrial(trial.rollout_id, names, since, until)
