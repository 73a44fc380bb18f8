"""Whether the model of a rollout can decide: asked once, when the rollout is folded."""

import logging
from collections.abc import Callable, Mapping

from models.errors import ModelError, ModelMissingError, ModelUnavailableError
from models.registry import ModelRef
from models.rollouts import Rollout
from models.scoring import Scorer
from streaming_job.contracts import Reason
from streaming_job.decide.rollout_history import Verdict

log = logging.getLogger(__name__)


class ModelJudge:
    """Loads models of rollouts; what an earlier run has said of one stays said."""

    def __init__(self, load: Callable[[ModelRef], Scorer], said_up_to: int, told: Mapping[int, str]) -> None:
        """Judge for a key group.

        Args:
            load: gives a model's scorer; has waited before it says that the model is unavailable.
            said_up_to: Q of the rollouts: an earlier run has told of those before.
            told: by offset of the rollouts before Q that it has set aside: the reason.
        """
        self._load, self._said_up_to, self._told = load, said_up_to, told

    def __call__(self, rollout: Rollout, offset: int, is_replaceable: bool) -> Verdict:
        """See `rollout_history.Judge`.

        Raises:
            ModelUnavailableError: the files cannot be had, and nothing else could decide.
        """
        told = self._told.get(offset)
        # features that were lacking then may be there now: of the model nothing has been said yet
        if offset < self._said_up_to and told != Reason.INCOMPATIBLE_FEATURES:
            return Verdict() if told is None else Verdict(told)
        try:
            self._load(rollout.model)
        except ModelMissingError as fault:
            found = Verdict(Reason.MODEL_UNAVAILABLE.value, str(fault))
        except ModelUnavailableError as fault:
            if not is_replaceable:
                raise
            found = Verdict(Reason.MODEL_UNAVAILABLE.value, str(fault))
        except ModelError as fault:
            found = Verdict(Reason.MODEL_REFUSED.value, str(fault))
        else:
            return Verdict()
        log.error("rollout %s is set aside: %s", rollout.rollout_id, found.detail)
        return found

    def warm_up(self, newest: Rollout | None) -> None:
        """Load the model in force, so that no transaction waits for it.

        If it cannot be had, the transaction that needs it says so: the log may hold a withdrawal before that.
        """
        if newest is not None:
            try:
                self._load(newest.model)
            except ModelError as fault:
                log.error("the model of rollout %s, in force, cannot be loaded: %s", newest.rollout_id, fault)
