"""Game day: Connect is killed, profiles are no longer fed, and the replication slot retains WAL."""

import psycopg

from deploy.local import stack
from deploy.local.connect import SLOT
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign

CHANGES = 40
"""Number of changes of every profile, which make some megabytes of WAL."""
SLOT_QUERY = """
select active, wal_status, pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn))
from pg_replication_slots where slot_name = %s
"""


def note_slot(scene: Scene) -> None:
    """Add the state of the replication slot to the journal."""
    with psycopg.connect(scene.stack.postgres_dsn) as connection:
        row = connection.execute(SLOT_QUERY, [SLOT]).fetchone()
    assert row is not None
    active, status, retained = row
    scene.journal.add(
        "postgres", f"slot {SLOT}: active {active}, wal_status {status}, {retained} not confirmed"
    )


def _provoke(scene: Scene) -> None:
    note_slot(scene)
    stack.kill(scene.stack_dir, "connect")
    with psycopg.connect(scene.stack.postgres_dsn) as connection:
        for number in range(CHANGES):
            connection.execute("update card_profiles set credit_limit = 1000 + %s", [number])
            connection.commit()
    note_slot(scene)


def _mend(scene: Scene) -> None:
    stack.up(scene.stack_dir)
    scene.caught_up()
    note_slot(scene)


DAY = Gameday(
    name="feed_dead",
    entries=("feed_silent",),
    symptom="Profiles are no longer fed, and the replication slot grows",
    provoked_by=f"SIGKILL to Kafka Connect; then the bank changes each profile {CHANGES} times",
    mended_by="Connect is started again; the connector continues at its slot's position",
    expected=Expected(
        codes=("feed_silent",),
        signs=(Sign("fraud_profile_feed_age_seconds", 45, {"signal": "heartbeat"}),),
        rules=("FraudProfileFeedSilent",),
    ),
    provoke=_provoke,
    mend=_mend,
)
