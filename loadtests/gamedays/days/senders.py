"""Game days: a sender of transactions misbehaves.

One card pays far more often than any other. One sender is late, so the watermark is far behind although
transactions are decided. A sender that sends in parallel changes the order of the transactions.
"""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign
from loadtests.gamedays.traffic import encoded, transactions

OF_THE_CARD = 50
"""Transactions of the card in each quarter of a second."""
LATE_MS = 30 * 60_000
LATE_ONES = 2
SHARE = 0.9


def _send_for_one_card(scene: Scene) -> None:
    card = scene.installed.world.cards.ids[0].as_py()

    def hot() -> None:
        records = transactions(scene.installed.world, OF_THE_CARD)
        scene.installed.send_raw(encoded([record | {"card_id": card} for record in records]))

    scene.traffic.also = hot


def _explain_the_card(scene: Scene) -> None:
    scene.traffic.also = None
    scene.caught_up()
    card = scene.installed.world.cards.ids[0].as_py()
    output = scene.fraud("explain-card", card, "--json")
    scene.note(f"`fraud explain-card`: {output[:200]}")


HOT_CARD = Gameday(
    name="hot_card",
    entries=("partition_behind", "alert_storm"),
    symptom="One card pays two hundred times a second",
    provoked_by=f"one card pays {4 * OF_THE_CARD} times a second",
    mended_by="its sender is stopped; `fraud explain-card` shows whether the card is real",
    expected=Expected(
        signs=(
            Sign("fraud_alert_rules_total", 2_000, {"rule": "velocity_5m"}, grows=True),
            Sign("fraud_transactions_total", 5_000, grows=True),
        ),
    ),
    provoke=_send_for_one_card,
    mend=_explain_the_card,
    note="The job keeps up, so no reason code appears, and `FraudPartitionBehindOthers` does not fire.",
)


def _send_late(scene: Scene) -> None:
    def late() -> None:
        scene.installed.send_raw(encoded(transactions(scene.installed.world, LATE_ONES, LATE_MS)))

    scene.traffic.also = late


def _stop_the_late_sender(scene: Scene) -> None:
    scene.traffic.also = None


WATERMARK_STUCK = Gameday(
    name="watermark_stuck",
    entries=("watermark_stuck",),
    symptom="The watermark is ten minutes old although transactions are decided",
    provoked_by="one sender in eleven delivers half an hour late",
    mended_by="that sender is stopped",
    expected=Expected(
        signs=(Sign("fraud_watermark_age_seconds", 600),),
        rules=("FraudWatermarkStuck",),
    ),
    provoke=_send_late,
    mend=_stop_the_late_sender,
    # a watermark never goes back: it stops, and takes ten minutes to become ten minutes old
    patience_s=780.0,
)


def _send_out_of_order(scene: Scene) -> None:
    scene.traffic.disturbances["out_of_order"] = SHARE


def _send_in_order(scene: Scene) -> None:
    scene.traffic.disturbances.clear()


OUT_OF_ORDER = Gameday(
    name="out_of_order",
    entries=("out_of_order",),
    symptom="Transactions of a card arrive in another order than they happened in",
    provoked_by=f"{SHARE:.0%} of the transactions arrive up to 30 s late, with random delays",
    mended_by="the transactions are sent in order again",
    expected=Expected(
        signs=(Sign("fraud_late_total", 500, grows=True),),
        rules=("FraudOutOfOrder",),
    ),
    provoke=_send_out_of_order,
    mend=_send_in_order,
)
