"""The Fraud Detection Handbook's data in a real job: scores and figures equal the offline evaluation's."""

import json
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from harness.handbook import handbook_file
from thoroughness import only_thorough

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from feature_store.catalogue import DAY_MS
from feature_store.merchants.catalogue import ALL_NAMES, computed
from feature_store.training.merchant_reports import UndatedLabels
from feature_store.training.transaction_files import TransactionFiles
from loadtests.audit.topic_log import TopicLog
from loadtests.faults.installation import Installation
from loadtests.rig.pace import Pace
from loadtests.rig.send import Sender
from loadtests.simulator.chargebacks import Chargebacks
from loadtests.simulator.replay import Replay
from loadtests.simulator.rollouts import publish
from loadtests.simulator.timeline import timeline
from models import loading, registry
from models.algorithms import Learner
from models.evaluation.history import History, Source, read
from models.evaluation.protocol import Fold, Windows, split
from models.evaluation.run import assess, fit
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import installation
from models.rounding import rounded
from streaming_job.log.clients import Address

pytestmark = [pytest.mark.integration, only_thorough, pytest.mark.timeout(1_800)]

WINDOWS, FOLDS = Windows(date(2018, 6, 20)), 4
DELAY_MS = 7 * DAY_MS
BUDGET = 0.005
NOTHING, EVERYTHING = Policy(1.0, 10_000), Policy(0.0, 10_000)
"""Policies by which no transaction, or every one, becomes an alert; only an alert shows the score."""


@pytest.fixture(scope="module")
def file() -> Path:
    """The transactions of the handbook's authors."""
    return handbook_file("transactions")


def registered(history: History, fold: Fold, tracking_uri: str) -> ModelRef:
    """The model of a fold, as `fraud models evaluate` fits it."""
    rows = history.features[fold.train]
    golden = rows[:: len(rows) // 200]
    estimator = fit(history, fold, Learner())
    typical = np.nanmedian(np.where(np.isnan(rows).all(axis=0), 0.0, rows), axis=0)
    return registry.register(estimator, computed(merchants=True), golden, typical, tracking_uri)


def send(installed: Installation, replay: Replay, until_ms: int) -> int:
    """Send transactions before a time, each fraud's label a week later; return the number of transactions."""
    arrivals = np.concatenate([batch.arrival for batch in replay.batches()])
    rows = int(np.searchsorted(arrivals, until_ms))
    topics = installed.topics
    sender = Sender(Address(installed.stack.bootstrap_servers), stamped=True)
    records = timeline(replay.batches(rows), Chargebacks(delay_ms=DELAY_MS), topics, drain=False)
    sent = sender.send(records, Pace.at_once())
    assert sent[topics.chargebacks] > 1_000
    return rows


def streamed(installed: Installation, first_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Score and features of each transaction from number `first_id` on; NaN without an alert."""
    log = TopicLog(installed.stack.bootstrap_servers)
    alerts: dict[int, tuple[float, np.ndarray]] = {}
    for record in log.read(installed.topics.fraud_alerts):
        alert = json.loads(record.value or b"")
        # null becomes NaN
        values = np.array([alert["features"][name] for name in ALL_NAMES], dtype=np.float64)
        number = int(alert["transaction_id"].removeprefix("h-"))
        assert number not in alerts
        alerts[number] = alert["score"], values
    assert min(alerts) >= first_id
    scores = np.full(max(alerts) - first_id + 1, np.nan)
    features = np.full((scores.size, len(ALL_NAMES)), np.nan)
    for number, (score, values) in alerts.items():
        scores[number - first_id], features[number - first_id] = score, values
    return scores, features


def test_streamed_scores_and_figures_are_those_of_the_evaluation(
    file: Path, stack: Endpoints, topic_names, tmp_path: Path
) -> None:
    """Each fold's model decides its test week, and alerts on each transaction; before, nothing alerts."""
    last = WINDOWS.fold(FOLDS - 1)
    source = Source(TransactionFiles(file), UndatedLabels(DELAY_MS), None, DELAY_MS)
    history = read(source, WINDOWS.train_start, last.test_start + timedelta(last.test_days))
    fraud = history.known.fraud(history.arrival.size)
    folds = [split(WINDOWS.fold(number), history.day, history.card, fraud) for number in range(FOLDS)]
    uri, topics = stack.mlflow_tracking_uri, topic_names()
    # not Debezium's topic, which other tests read: the archive's topics keep the producers' timestamps
    topics = topics.model_copy(update={"profiles": f"{topics.transactions}-profiles"})
    models = [registered(history, fold, uri) for fold in folds]

    installed = Installation(
        stack,
        topics,
        tmp_path,
        merchant_facts=True,
        label_delay_ms=DELAY_MS,
        arrival="create",
        wait_for_snapshot_s=0,
    )
    broker.create(stack.bootstrap_servers, topics, replay=True)
    replay = Replay(file)
    begins = [replay.first_ms, *(fold.windows.first_test_day * DAY_MS for fold in folds)]
    policies = [NOTHING, *[EVERYTHING] * FOLDS]
    for number, (model, begin) in enumerate(zip([models[0], *models], begins, strict=True)):
        events = installation(model, policies[number], f"fold-{number}", "test", begin)
        publish(events, stack.bootstrap_servers, topics.model_rollouts, timestamp_ms=begin - 1)
    installed.sent = send(installed, replay, folds[-1].windows.end_day * DAY_MS)
    with installed.start() as job:
        installed.caught_up(job)

    tested = np.flatnonzero(history.day >= folds[0].windows.first_test_day)
    scores, features = streamed(installed, installed.sent - tested.size)
    assert scores.size == tested.size
    assert features.tobytes() == history.features[tested].tobytes()
    figures = []
    for model, fold in zip(models, folds, strict=True):
        scorer = loading.load(model, uri, tmp_path / "models")
        theirs = scores[fold.test - tested[0]]
        assert theirs.tobytes() == scorer.score(history.features[fold.test]).tobytes()
        offline = rounded(fit(history, fold, Learner()).predict_proba(history.features[fold.test])[:, 1])
        result = assess(history, fold, theirs, BUDGET)
        assert result == assess(history, fold, offline, BUDGET)
        figures.append((result.quality.average_precision, result.card_precision))
    print(f"average precision, card precision at 100, by fold: {figures}")
    average_precision, card_precision = np.mean(figures, axis=0)
    assert average_precision >= 0.75
    assert card_precision >= 0.29
