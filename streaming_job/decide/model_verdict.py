"""The check that the models of a proposed rollout can be loaded, made once, when the proposal is folded."""

import logging
from collections.abc import Callable, Mapping

from models.errors import ModelError, ModelMissingError, ModelUnavailableError
from models.registry import ModelRef
from models.rollouts.events import Event
from models.rollouts.state import Plan
from models.scoring import Scorer
from streaming_job.contracts import Reason
from streaming_job.decide.rollout_history import GOOD, EventVerdict

log = logging.getLogger(__name__)


class ModelJudge:
    """Judge of proposals, which loads their models; verdicts of earlier runs are final."""

    def __init__(
        self, load: Callable[[ModelRef], Scorer], judged_up_to: int, reasons: Mapping[int, str]
    ) -> None:
        """Create the judge of a key group.

        Args:
            load: returns a model's scorer; retries for a while before it raises ModelUnavailableError.
            judged_up_to: Q of the rollout topic: an earlier run has reported its verdicts on events before Q.
            reasons: offset -> reason, for each proposal before Q that the earlier run set aside.
        """
        self._load, self._judged_up_to, self._reasons = load, judged_up_to, reasons

    def __call__(self, proposal: Event, offset: int, is_replaceable: bool) -> EventVerdict:
        """Judge a proposal (`rollout_history.Judge`); the first unfit challenger gives the reason.

        Raises:
            ModelUnavailableError: registry or files cannot be reached, and no other champion can decide.
        """
        if offset < self._judged_up_to:
            return EventVerdict(self._reasons.get(offset, GOOD))
        for challenger in proposal.challengers:
            verdict = self._judge(challenger.model, is_replaceable)
            if verdict != EventVerdict():
                log.error("rollout %s is set aside: %s", proposal.rollout_id, verdict.detail)
                return verdict
        return EventVerdict()

    def _judge(self, model: ModelRef, is_replaceable: bool) -> EventVerdict:
        try:
            self._load(model)
        except ModelMissingError as fault:
            return EventVerdict(Reason.MODEL_UNAVAILABLE.value, str(fault))
        except ModelUnavailableError as fault:
            if not is_replaceable:
                raise
            return EventVerdict(Reason.MODEL_UNAVAILABLE.value, str(fault))
        except ModelError as fault:
            return EventVerdict(Reason.MODEL_REFUSED.value, str(fault))
        return EventVerdict()

    def warm_up(self, newest: Plan | None) -> None:
        """Load the champion's model in advance, so that no transaction waits for it.

        A failure is only logged here, and raised for the first transaction that needs the model. Perhaps no
        transaction will: a withdrawal that is not read yet may have arrived before all of them.
        """
        if newest is None:
            return
        champion = newest.champion
        try:
            self._load(champion.model)
        except ModelError as fault:
            log.error("the model of rollout %s, in force, cannot be loaded: %s", champion.rollout_id, fault)
