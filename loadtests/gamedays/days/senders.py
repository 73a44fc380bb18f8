"""Game days: a sender of transactions misbehaves.

One card pays far more often than any other. One sender is late, so the watermark is far behind although
transactions are decided. A sender that sends in parallel changes the order of the transactions. A
producer's release renames a field, so its records become dead letters.
"""

import json
from pathlib import Path
from typing import Any

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign

OF_THE_CARD = 50
"""Transactions of the card in each quarter of a second."""
LATE_MS = 30 * 60_000
LATE_ONES = 2
SHARE = 0.9


def _send_for_one_card(scene: Scene) -> None:
    card = scene.installed.world.cards.ids[0].as_py()
    scene.traffic.add(OF_THE_CARD, lambda record: record | {"card_id": card})


def _explain_the_card(scene: Scene) -> None:
    scene.traffic.end_added()
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
    provoke=lambda scene: scene.traffic.add(LATE_ONES, age_ms=LATE_MS),
    mend=lambda scene: scene.traffic.end_added(),
    # a watermark never goes back: it stops, and takes ten minutes to become ten minutes old
    patience_s=780.0,
)


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
    provoke=lambda scene: scene.traffic.disturbances.update(out_of_order=SHARE),
    mend=lambda scene: scene.traffic.disturbances.clear(),
)


EACH = 10
"""Records of the new release that follow each batch of 20 from the other senders."""
OLD, NEW = "amount", "amount_value"
RENAMED = {OLD: NEW, NEW: OLD}


def _renamed(record: dict[str, Any]) -> dict[str, Any]:
    return {RENAMED.get(name, name): value for name, value in record.items()}


def _repair_the_letters(scene: Scene) -> None:
    scene.traffic.end_added()
    scene.caught_up()
    file = scene.installed.directory / "letters"
    scene.fraud("dead-letters", "list", "--raw", str(file))
    count = _repair(file)
    with scene.traffic.paused():
        output = scene.fraud("dead-letters", "replay", str(file))
        scene.installed.sent += count
    scene.note(
        f"the field is renamed back in {count} dead letters; `fraud dead-letters replay` says {output}"
    )


def _repair(file: Path) -> int:
    """Repair the records in a file of `list --raw`; returns their number."""
    letters = [json.loads(line) for line in file.read_text().splitlines()]
    for letter in letters:
        record = json.loads(letter["value"])
        letter["value"] = json.dumps(_renamed(record))
    file.write_text("".join(json.dumps(letter) + "\n" for letter in letters))
    return len(letters)


SCHEMA_CHANGE = Gameday(
    name="schema_change",
    entries=("dead_letters",),
    symptom="Transactions become dead letters after a producer's release",
    provoked_by=f"a third of the senders rename the field {OLD} to {NEW}",
    mended_by="the senders roll the release back; their dead letters are repaired and replayed",
    expected=Expected(
        signs=(Sign("fraud_dead_letters_total", 500, {"reason": "missing_field"}, grows=True),),
        rules=("FraudDeadLetters",),
        firing=("FraudDeadLetterFlood",),
    ),
    provoke=lambda scene: scene.traffic.add(EACH, _renamed),
    mend=_repair_the_letters,
    patience_s=300,
)
