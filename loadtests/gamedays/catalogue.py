"""All game days, in the order in which they are run."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.days import (
    brokers,
    checkpoints,
    duplicates_seen,
    feed_dead,
    fenced,
    hanging,
    rollouts,
    senders,
    takeovers,
)

DAYS: dict[str, Gameday] = {
    day.name: day
    for day in (
        hanging.LAG_GROWING,
        hanging.STUCK,
        hanging.PARTITION_BEHIND,
        fenced.DAY,
        brokers.TRANSACTION_HUNG,
        feed_dead.DAY,
        senders.SCHEMA_CHANGE,
        rollouts.CHALLENGER_FAILS,
        rollouts.CHAMPION_FAILS,
        rollouts.ALERT_STORM,
        checkpoints.CHECKPOINT_DELETED,
        checkpoints.CHECKPOINT_LOST,
        checkpoints.DISK_FULL,
        takeovers.RESIZE_INTERRUPTED,
        takeovers.UPGRADE_TAKEN_BACK,
        senders.HOT_CARD,
        hanging.LONG_EPOCHS,
        senders.WATERMARK_STUCK,
        senders.OUT_OF_ORDER,
        brokers.BROKER_DOWN,
        duplicates_seen.DAY,  # last, because its duplicate cannot be removed from the topic
    )
}
"""Game days by name."""
