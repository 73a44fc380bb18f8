"""Errors of joining alerts with labels."""

from feature_store.errors import FraudError


class UnreadError(FraudError):
    """Alerts and labels cannot be read: a topic does not exist, or brokers or permissions prevent it.

    The guard `precision` and the live precision wait, and the other guards continue; see
    [precision](rollouts.md#precision).
    """


class OutcomesError(FraudError):
    """The file of alerts by label is in use by another sidecar or damaged, or the disk is full.

    Give each sidecar a work directory of its own, make room, or delete the damaged file: what the topics
    still hold is counted again. The sidecar tries again each second.
    """
