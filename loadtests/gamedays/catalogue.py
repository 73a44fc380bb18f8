"""All game days, in the order in which they are run."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.days import (
    alert_storm,
    broker_down,
    challenger_fails,
    champion_fails,
    checkpoint_deleted,
    disk_full,
    duplicates_seen,
    feed_dead,
    fenced,
    hot_card,
    lag_growing,
    long_epochs,
    out_of_order,
    partition_behind,
    schema_change,
    stuck,
    transaction_hung,
    watermark_stuck,
)

DAYS: dict[str, Gameday] = {
    module.DAY.name: module.DAY
    for module in (
        lag_growing,
        stuck,
        partition_behind,
        fenced,
        transaction_hung,
        feed_dead,
        schema_change,
        challenger_fails,
        champion_fails,
        alert_storm,
        checkpoint_deleted,
        disk_full,
        hot_card,
        long_epochs,
        watermark_stuck,
        out_of_order,
        broker_down,
        duplicates_seen,  # last, because its duplicate cannot be removed from the topic
    )
}
"""Game days by name."""
