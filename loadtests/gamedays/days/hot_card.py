"""A hot card: one card pays far more often than any card does."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.senders import encoded, transactions
from loadtests.gamedays.sight import Expected, Sign

EACH = 50
"""Transactions in a quarter of a second, all of one card."""


def _provoke(scene: Scene) -> None:
    card = scene.installed.world.cards.ids[0].as_py()

    def hot() -> None:
        made = transactions(scene.installed.world, EACH)
        scene.installed.send_raw(encoded([one | {"card_id": card} for one in made]))

    scene.traffic.also = hot


def _mend(scene: Scene) -> None:
    scene.traffic.also = None
    scene.caught_up()
    card = scene.installed.world.cards.ids[0].as_py()
    told = scene.fraud("explain-card", card, "--json")
    scene.tell(f"`fraud explain-card`: {told[:200]}")


DAY = Gameday(
    name="hot_card",
    entries=("partition_behind", "alert_storm"),
    symptom="One card pays two hundred times a second",
    provoked_by=f"one card pays {4 * EACH} times a second",
    mended_by="its sender is stopped; `fraud explain-card` shows whether the card is real",
    expected=Expected(
        signs=(
            Sign("fraud_alert_rules_total", 2_000, {"rule": "velocity_5m"}, grows=True),
            Sign("fraud_transactions_total", 5_000, grows=True),
        ),
    ),
    provoke=_provoke,
    mend=_mend,
    note="The job keeps up: no code shows, and `FraudPartitionBehindOthers` has no reason to.",
)
