"""The feed of profiles is dead: Connect was killed, and Postgres keeps what its slot has not given away."""

import psycopg

from deploy.local import stack
from deploy.local.connect import SLOT
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign

CHANGES = 40
"""Times that every profile is changed: some megabytes of Postgres' log."""
QUESTION = """
select active, wal_status, pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn))
from pg_replication_slots where slot_name = %s
"""


def tell_slot(scene: Scene) -> None:
    """Say in the journal how the replication slot does."""
    with psycopg.connect(scene.stack.postgres_dsn) as connection:
        row = connection.execute(QUESTION, [SLOT]).fetchone()
    assert row is not None
    active, status, kept = row
    scene.journal.tell("postgres", f"slot {SLOT}: active {active}, wal_status {status}, {kept} not confirmed")


def _provoke(scene: Scene) -> None:
    tell_slot(scene)
    stack.kill(scene.stack_dir, "connect")
    with psycopg.connect(scene.stack.postgres_dsn) as connection:
        for number in range(CHANGES):
            connection.execute("update card_profiles set credit_limit = 1000 + %s", [number])
            connection.commit()
    tell_slot(scene)


def _mend(scene: Scene) -> None:
    stack.up(scene.stack_dir)
    scene.caught_up()
    tell_slot(scene)


DAY = Gameday(
    name="feed_dead",
    entries=("feed_silent",),
    symptom="Profiles are no longer fed, and the replication slot grows",
    provoked_by=f"SIGKILL to Kafka Connect; then the bank changes each profile {CHANGES} times",
    mended_by="Connect is started again; the connector goes on where its slot stands",
    expected=Expected(
        codes=("feed_silent",),
        signs=(Sign("fraud_profile_feed_age_seconds", 45, {"signal": "heartbeat"}),),
        rules=("FraudProfileFeedSilent",),
    ),
    provoke=_provoke,
    mend=_mend,
)
