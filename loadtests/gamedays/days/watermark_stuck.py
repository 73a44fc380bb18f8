"""Game day: the watermark is far behind although transactions are decided, because one sender is late."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.senders import encoded, transactions
from loadtests.gamedays.sight import Expected, Sign

LATE_MS = 30 * 60_000
EACH = 2


def _provoke(scene: Scene) -> None:
    def late() -> None:
        scene.installed.send_raw(encoded(transactions(scene.installed.world, EACH, LATE_MS)))

    scene.traffic.also = late


def _mend(scene: Scene) -> None:
    scene.traffic.also = None


DAY = Gameday(
    name="watermark_stuck",
    entries=("watermark_stuck",),
    symptom="The watermark is ten minutes old although transactions are decided",
    provoked_by="one sender in eleven delivers half an hour late",
    mended_by="that sender is stopped",
    expected=Expected(
        signs=(Sign("fraud_watermark_age_seconds", 600),),
        rules=("FraudWatermarkStuck",),
    ),
    provoke=_provoke,
    mend=_mend,
    # a watermark never goes back: it stops, and takes ten minutes to become ten minutes old
    patience_s=780.0,
)
