"""All game days, in the order in which they are run."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.days import (
    broker_down,
    checkpoints,
    disk_full,
    duplicates_seen,
    feed_dead,
    fenced,
    hanging,
    rollouts,
    schema_change,
    senders,
    transaction_hung,
)

DAYS: dict[str, Gameday] = {
    day.name: day
    for day in (
        hanging.LAG_GROWING,
        hanging.STUCK,
        hanging.PARTITION_BEHIND,
        fenced.DAY,
        transaction_hung.DAY,
        feed_dead.DAY,
        schema_change.DAY,
        rollouts.CHALLENGER_FAILS,
        rollouts.CHAMPION_FAILS,
        rollouts.ALERT_STORM,
        checkpoints.CHECKPOINT_DELETED,
        checkpoints.CHECKPOINT_LOST,
        disk_full.DAY,
        senders.HOT_CARD,
        hanging.LONG_EPOCHS,
        senders.WATERMARK_STUCK,
        senders.OUT_OF_ORDER,
        broker_down.DAY,
        duplicates_seen.DAY,  # last, because its duplicate cannot be removed from the topic
    )
}
"""Game days by name."""
