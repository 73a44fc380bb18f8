"""Whether the models of a proposal can decide: asked once, when the event is folded."""

import logging
from collections.abc import Callable, Mapping

from models.errors import ModelError, ModelMissingError, ModelUnavailableError
from models.registry import ModelRef
from models.rollouts.events import Event
from models.rollouts.machine import Plan
from models.scoring import Scorer
from streaming_job.contracts import Reason
from streaming_job.decide.rollout_history import Verdict

log = logging.getLogger(__name__)


class ModelJudge:
    """Loads the models of proposals; what an earlier run has said of one stays said."""

    def __init__(self, load: Callable[[ModelRef], Scorer], said_up_to: int, told: Mapping[int, str]) -> None:
        """Judge for a key group.

        Args:
            load: gives a model's scorer; has waited before it says that the model is unavailable.
            said_up_to: Q of the rollouts: an earlier run has told of those before.
            told: by offset of the proposals before Q that it has set aside: the reason.
        """
        self._load, self._said_up_to, self._told = load, said_up_to, told

    def __call__(self, proposal: Event, offset: int, is_replaceable: bool) -> Verdict:
        """See `rollout_history.Judge`; the first challenger that cannot decide gives the reason.

        Raises:
            ModelUnavailableError: the files cannot be had, and nothing else could decide.
        """
        told = self._told.get(offset)
        # features that a record of version 1 lacked may be there now: of its model nothing has been said yet
        is_open = told == Reason.INCOMPATIBLE_FEATURES and proposal.schema_version == 1
        if offset < self._said_up_to and not is_open:
            return Verdict() if told is None else Verdict(told)
        for challenger in proposal.challengers:
            found = self._judge(challenger.model, is_replaceable)
            if found != Verdict():
                log.error("rollout %s is set aside: %s", proposal.rollout_id, found.detail)
                return found
        return Verdict()

    def _judge(self, model: ModelRef, is_replaceable: bool) -> Verdict:
        try:
            self._load(model)
        except ModelMissingError as fault:
            return Verdict(Reason.MODEL_UNAVAILABLE.value, str(fault))
        except ModelUnavailableError as fault:
            if not is_replaceable:
                raise
            return Verdict(Reason.MODEL_UNAVAILABLE.value, str(fault))
        except ModelError as fault:
            return Verdict(Reason.MODEL_REFUSED.value, str(fault))
        return Verdict()

    def warm_up(self, newest: Plan | None) -> None:
        """Load the champion's model, so that no transaction waits for it.

        If it cannot be had, the transaction that needs it says so: the log may hold a withdrawal before that.
        """
        if newest is None:
            return
        champion = newest.champion
        try:
            self._load(champion.model)
        except ModelError as fault:
            log.error("the model of rollout %s, in force, cannot be loaded: %s", champion.rollout_id, fault)
