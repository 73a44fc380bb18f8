"""Game day: a hot card, which pays far more often than any other card."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.senders import encoded, transactions
from loadtests.gamedays.sight import Expected, Sign

EACH = 50
"""Transactions of the card in each quarter of a second."""


def _provoke(scene: Scene) -> None:
    card = scene.installed.world.cards.ids[0].as_py()

    def hot() -> None:
        records = transactions(scene.installed.world, EACH)
        scene.installed.send_raw(encoded([record | {"card_id": card} for record in records]))

    scene.traffic.also = hot


def _mend(scene: Scene) -> None:
    scene.traffic.also = None
    scene.caught_up()
    card = scene.installed.world.cards.ids[0].as_py()
    output = scene.fraud("explain-card", card, "--json")
    scene.note(f"`fraud explain-card`: {output[:200]}")


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
    note="The job keeps up, so no reason code appears, and `FraudPartitionBehindOthers` does not fire.",
)
