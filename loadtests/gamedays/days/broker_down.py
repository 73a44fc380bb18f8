"""Game day: the brokers do not answer."""

from deploy.local import stack
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected


def _provoke(scene: Scene) -> None:
    stack.kill(scene.stack_dir, "kafka")


def _mend(scene: Scene) -> None:
    stack.up(scene.stack_dir)
    scene.caught_up()


DAY = Gameday(
    name="broker_down",
    entries=("broker_unreachable",),
    symptom="The brokers do not answer",
    provoked_by="SIGKILL to Kafka",
    mended_by="Kafka is started again; job and sidecar keep running",
    expected=Expected(
        codes=("broker_unreachable",),
        checks=("broker",),
        rules=("FraudBrokerUnreachable",),
    ),
    provoke=_provoke,
    mend=_mend,
)
