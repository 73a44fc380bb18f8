"""The mirror of the champion's alias when the registry fails; `test_rollout_commands` has a real registry."""

import pytest
from harness.memory_rollouts import ADA, MemoryRollouts, ref
from harness.rollout_records import event

from models.errors import ModelUnavailableError
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import Type, installation
from service.rollouts.alias_mirror import ALIAS, AliasMirror

pytestmark = pytest.mark.unit


class Registry:
    """An alias in memory; moving it may fail, before or after the move."""

    def __init__(self) -> None:
        self.version = ""
        self.fault: Exception | None = None

    def point(self, alias: str, model: ModelRef) -> None:
        assert alias == ALIAS
        self.version = model.version
        if self.fault is not None:
            raise self.fault


@pytest.mark.parametrize(
    ("fault", "text"),
    [(ModelUnavailableError("no answer"), "no answer"), (ValueError("no JSON"), "ValueError: no JSON")],
)
def test_an_alias_that_moved_without_an_answer_is_moved_back_with_the_champion(
    fault: Exception, text: str
) -> None:
    log, registry = MemoryRollouts(), Registry()
    mirror = AliasMirror(log.history, registry.point)
    assert mirror.look()
    log.put(*installation(ref(2), Policy(0.5, 6), "r2", ADA.name, 1))
    registry.fault = fault
    assert not mirror.look()
    assert (registry.version, mirror.fault) == ("2", text)
    log.put(event(Type.WITHDRAWN, "r2", 3))
    registry.fault = None
    assert mirror.look()
    assert (registry.version, mirror.fault) == ("1", None)
