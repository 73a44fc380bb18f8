"""Game day: transactions arrive out of order, because a sender sends in parallel."""

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign

SHARE = 0.9


def _provoke(scene: Scene) -> None:
    scene.traffic.disturbances["out_of_order"] = SHARE


def _mend(scene: Scene) -> None:
    scene.traffic.disturbances.clear()


DAY = Gameday(
    name="out_of_order",
    entries=("out_of_order",),
    symptom="Transactions of a card arrive in another order than they happened in",
    provoked_by=f"{SHARE:.0%} of the transactions arrive up to 30 s late, with random delays",
    mended_by="the transactions are sent in order again",
    expected=Expected(
        signs=(Sign("fraud_late_total", 500, grows=True),),
        rules=("FraudOutOfOrder",),
    ),
    provoke=_provoke,
    mend=_mend,
)
