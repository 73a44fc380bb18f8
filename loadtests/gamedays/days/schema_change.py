"""Game day: a producer's release renames a field, so its records become dead letters."""

import json
from pathlib import Path

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign
from loadtests.gamedays.traffic import encoded, transactions

EACH = 10
"""Records of the new release that follow each batch of 20 from the other senders."""
OLD, NEW = "amount", "amount_value"


def _provoke(scene: Scene) -> None:
    def new_release() -> None:
        records = transactions(scene.installed.world, EACH)
        renamed = [
            {NEW if name == OLD else name: value for name, value in record.items()} for record in records
        ]
        scene.installed.send_raw(encoded(renamed))

    scene.traffic.also = new_release


def _mend(scene: Scene) -> None:
    scene.traffic.also = None
    scene.caught_up()
    file = scene.installed.directory / "letters"
    scene.fraud("dead-letters", "list", "--raw", str(file))
    count = _rename(file)
    with scene.traffic.paused():
        output = scene.fraud("dead-letters", "replay", str(file))
        scene.installed.sent += count
    scene.note(
        f"the field is renamed back in {count} dead letters; `fraud dead-letters replay` says {output}"
    )


def _rename(file: Path) -> int:
    """Repair the records in a file of `list --raw`; returns their number."""
    letters = [json.loads(line) for line in file.read_text().splitlines()]
    for letter in letters:
        record = json.loads(letter["value"])
        letter["value"] = json.dumps({OLD if name == NEW else name: value for name, value in record.items()})
    file.write_text("".join(json.dumps(letter) + "\n" for letter in letters))
    return len(letters)


DAY = Gameday(
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
    provoke=_provoke,
    mend=_mend,
    patience_s=300,
)
