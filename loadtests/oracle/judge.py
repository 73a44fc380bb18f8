"""The oracle: computes, from the logs alone, which outcome each transaction must have.

Naive on purpose: whole histories in plain Python, one transaction after another. It shares with the job the
reasons of dead letters, the models, the policy, the names of features, the centroids of countries and the
hash of merchant ids, but neither decoding nor state nor the computation of features.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from loadtests.oracle import alerts
from loadtests.oracle.alerts import ModelDecision, Pending
from loadtests.oracle.card import Card
from loadtests.oracle.decode import RefusedError, read_transaction
from loadtests.oracle.features import compute
from loadtests.oracle.merchants import MerchantLog
from loadtests.oracle.records import AcceptanceRules, ExpectedOutcome, Kind, Record
from loadtests.oracle.rollout_log import RolloutLog
from loadtests.oracle.rollouts import Scorer
from loadtests.oracle.scoring import Model, Score, percentile, reasons, scores
from loadtests.oracle.tables import ProfileLog, dead_letter
from loadtests.oracle.trials import Trials
from loadtests.oracle.view import View
from models.parameters import REVIEW
from models.registry import ModelRef

CHUNK = 10_000
"""Number of records whose transactions are scored together."""


class Oracle:
    """Computes the outcomes of transactions in log order; the tables must be read first.

    Args:
        profiles: all versions of the profiles, already read.
        rollouts: all rollout events, already read; they must make some model champion.
        cards: history by card id; updated in place. Default: empty.
        merchants: accepted transactions and labels by merchant, already read; None if the job keeps no
            merchant facts.
    """

    def __init__(
        self,
        profiles: ProfileLog,
        rollouts: RolloutLog,
        load: Callable[[Scorer], Model],
        rules: AcceptanceRules,
        cards: dict[str, Card] | None = None,
        merchants: MerchantLog | None = None,
    ) -> None:
        self.trials = Trials()
        """The counts that the trials must have for the transactions judged so far."""
        self._profiles = profiles
        self._rollouts = rollouts
        self._load = load
        self._models: dict[ModelRef, Model] = {}
        self._rules = rules
        self._merchants = merchants
        self.has_facts = True
        """Whether the job has merchant facts yet, of the transactions that follow."""
        self._windows_before = 0
        self._cards: dict[str, Card] = {} if cards is None else cards

    def judge(self, records: Iterable[Record]) -> Iterator[ExpectedOutcome]:
        """Yield one outcome for each record of the transactions topic, in the same order.

        Args:
            records: each partition in the order of offsets; partitions may be interleaved.
        """
        chunk: list[Pending | ExpectedOutcome] = []
        for record in records:
            chunk.append(self._features(record))
            if len(chunk) == CHUNK:
                yield from self._decide(chunk)
                chunk = []
        yield from self._decide(chunk)

    def move(self, rules: AcceptanceRules) -> None:
        """Judge the following transactions by other rules: a takeover has moved the cards.

        The units of trials belong to a partition, so they begin anew.
        """
        self._rules = rules
        self.trials.move()

    def lost(self, profiles_before: int | None, windows_before: int | None) -> None:
        """Judge the following transactions as those of a job whose log had lost its beginning.

        Args:
            profiles_before: arrival before which compaction may have removed profiles, ms; None: it has not.
            windows_before: arrival before which windows may lack transactions, ms; None: they lack none.
        """
        self._profiles.compacted_before, self._windows_before = profiles_before or 0, windows_before or 0

    def _features(self, record: Record) -> Pending | ExpectedOutcome:
        try:
            tx = read_transaction(record, self._rules)
        except RefusedError as refused:
            return dead_letter(record, refused.reason)
        card = self._cards.get(tx.card_id)
        if card is None or card.is_forgotten(
            tx.arrival, self._rules.allowed_lateness_ms, partial(self._profiles.had_version, tx.card_id)
        ):
            card = self._cards[tx.card_id] = Card()
        plan = self._rollouts.plan(tx.arrival)
        assert plan is not None
        run = self.trials.follow(record.partition, plan.trial)
        if card.has(tx):
            return ExpectedOutcome(*record[:4], Kind.DUPLICATE)
        # the profile is read as of the card's greatest arrival if this transaction arrived earlier
        seen_at = max(tx.arrival, card.arrival)
        profile = self._profiles.in_force(tx.card_id, seen_at)
        status = self._profiles.status(tx.card_id, seen_at)
        view = View(tx, card, profile)
        features = compute(view)
        if self._merchants is not None and self.has_facts:
            features |= self._merchants.features(tx.merchant_id, tx.arrival)
        return Pending(
            record.topic, tx, card, profile, self._profiles.is_compacted(tx.card_id, seen_at),
            tx.arrival < self._windows_before, status, plan, run, features, view.late,
            view.conflicting,
        )  # fmt: skip

    def _model(self, scorer: Scorer) -> Model:
        model = self._models.get(scorer.model)
        if model is None:
            model = self._models[scorer.model] = self._load(scorer)
        return model

    def _decide(self, chunk: list[Pending | ExpectedOutcome]) -> Iterator[ExpectedOutcome]:
        scores_of_pending = iter(self._scores([item for item in chunk if isinstance(item, Pending)]))
        for item in chunk:
            yield item if isinstance(item, ExpectedOutcome) else self._decision(item, next(scores_of_pending))

    def _scores(self, pending: list[Pending]) -> list[dict[ModelRef, Score]]:
        """Return each transaction's scores by model; one call scores all rows of a scorer."""
        numbers_of: dict[Scorer, list[int]] = {}
        for number, item in enumerate(pending):
            for scorer in (item.plan.champion, *item.plan.challengers):
                numbers_of.setdefault(scorer, []).append(number)
        results: list[dict[ModelRef, Score]] = [{} for _ in pending]
        for scorer, numbers in numbers_of.items():
            model = self._model(scorer)
            rows = [_row(model, pending[number]) for number in numbers]
            for number, score in zip(numbers, scores(model, rows), strict=True):
                results[number][scorer.model] = score
        return results

    def _decision(self, item: Pending, answers: dict[ModelRef, Score]) -> ExpectedOutcome:
        tx, card, plan = item.tx, item.card, item.plan
        champion, *challengers = (
            alerts.verdict(item, scorer, answers[scorer.model])
            for scorer in (plan.champion, *plan.challengers)
        )
        decider, challenger_failure = champion, None
        side = alerts.membership(tx.card_id, plan)
        if side is not None and side["is_member"]:
            canary = next(verdict for verdict in challengers if verdict.scorer.challenger == plan.canary)
            challenger_failure = canary.score.failure
            decider = champion if challenger_failure else canary
        if plan.trial is not None:
            votes = {
                verdict.scorer.challenger: verdict.trial_vote(verdict is decider) for verdict in challengers
            }
            self.trials.add(item.run, plan.trial, tx.card_id, tx.arrival, champion.trial_vote(), votes)
        shadows = tuple(
            ("shadow_alerts", alerts.shadow_alert(item, challenger, champion))
            for challenger in challengers
            if (challenger.decision is None) != (champion.decision is None)
        )
        source = item.topic, tx.partition, tx.offset, tx.arrival
        if decider.decision is None:
            return ExpectedOutcome(*source, Kind.PASSED, records=shadows)
        card.alerts.append(tx.arrival)
        model = self._model(decider.scorer)
        top_features, unexplained = reasons(model, _row(model, item), decider.score)
        alert = alerts.alert(item, decider, top_features, unexplained, challenger_failure)
        alert["score_percentile"] = percentile(model, decider.score)
        kind, topic = Kind.ALERT, "fraud_alerts"
        if self._is_cooling(item, decider):
            kind, topic = Kind.SUPPRESSED, "suppressed_alerts"
            alert["suppressed_by"] = {"arrival_time": card.last_written}
        else:
            card.last_written = tx.arrival
        records = ((topic, alert), *shadows)
        return ExpectedOutcome(*source, kind, records=records, looked_at=frozenset(model.feature_names))

    @staticmethod
    def _is_cooling(item: Pending, decider: ModelDecision) -> bool:
        """Return whether the alert is suppressed: a review within the cooldown of the last written alert."""
        cooldown_ms, last = decider.scorer.policy.cooldown_s * 1000, item.card.last_written
        assert decider.decision is not None
        if last is None or cooldown_ms == 0 or decider.decision.decision != REVIEW:
            return False
        return item.tx.arrival - last <= cooldown_ms


def _row(model: Model, item: Pending) -> list[float]:
    return [item.features[name] for name in model.feature_names]
