"""The join of alerts and labels over a job's output agrees with the job's own counts of alerted cards.

The job counts the cards on which champion and challengers alerted. If every transaction has a label, the
labelled cards of a model are exactly the cards on which that model alerted.
"""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from harness.group_batches import merged
from harness.log_world import TOPICS
from harness.random_trials import load_any
from harness.random_world import random_world
from thoroughness import THOROUGH

from service.labels.records import Label, alert_of, shadow_alert_of
from service.precision.labelled_cards import LabelledCards
from service.rollouts.history import History, Record
from service.rollouts.labelling import labelled_trial
from streaming_job.progress.outcome import Outcome

pytestmark = pytest.mark.unit

SEEDS = range(300 if THOROUGH else 6)
GUARDED = {"rules": [{"name": "precision", "min_precision": 0.1}]}


def history_of(records: list[Record], outcome: Outcome) -> History:
    aside = {
        letter.offset: letter.reason.value
        for letter in outcome.dead_letters
        if letter.topic == TOPICS.model_rollouts
    }
    return History().with_records(records, aside)


def test_alerted_cards_equal_the_jobs_counts() -> None:
    seen = Counter[str]()
    for seed in SEEDS:
        world = random_world(seed, 250, trials=True)
        outcome = merged(world.run((), load_model=load_any))
        records = [Record(record.offset, record.timestamp, record.value or b"") for record in world.rollouts]
        history = history_of(records, outcome)
        written = [
            *(
                (False, alert)
                for alert in (*outcome.records["fraud_alerts"], *outcome.records["suppressed_alerts"])
            ),
            *((True, alert) for alert in outcome.records["shadow_alerts"]),
        ]
        random.Random(seed).shuffle(written)
        for rollout_id, counted in outcome.trials.by_rollout.items():
            trial = labelled_trial(history, replace(history.line.trials[rollout_id], guards=GUARDED))
            assert trial is not None
            cards = LabelledCards(trial)
            for is_shadow, alert in written:
                value = json.loads(alert.value)
                cards.take((shadow_alert_of if is_shadow else alert_of)(value))
                cards.take(Label(value["card_id"], value["transaction_id"], (0, 0, 0), fraud=True))
            labelled = cards.counts()
            for name, counts in counted.challengers.items():
                of = counts.cards
                assert labelled.champion.fraud == of["both"] + of["only_champion"], (seed, rollout_id)
                assert labelled.challengers[name].fraud == of["both"] + of["only_challenger"], (seed, name)
                seen.update(dict(of))
    assert all(seen[kind] > 20 for kind in ("both", "only_champion", "only_challenger")), seen
