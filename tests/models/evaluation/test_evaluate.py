"""`fraud models evaluate`: no leaks from the future, and complete reports.

On the data of the Fraud Detection Handbook, the figures reach a given minimum.
"""

import json
import re
from datetime import date, timedelta
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness.handbook import handbook_file
from typer.testing import CliRunner

from feature_store.catalogue import CLIP_RATIO, COLUMN, DAY_MS, HOUR_MS, NAMES, ROBUST_MEMORY, SPIKE_RATIO
from feature_store.merchants.catalogue import MERCHANT_NAMES
from feature_store.training.merchant_reports import Reports, UndatedLabels
from feature_store.training.transaction_files import TransactionFiles
from models.algorithms import Algorithm
from models.commands import app
from models.errors import ModelError
from models.evaluation.history import Source, read
from models.evaluation.page import page
from models.plots import BLUE

pytestmark = pytest.mark.unit

START = date(2026, 1, 1)
DAYS = 30
DELAY = 2 * DAY_MS


def history(rows: int = 2_500) -> pa.Table:
    """30 days of transactions, not sorted by arrival; a fifth of the merchants is compromised for a while."""
    rng = np.random.default_rng(5)
    start = (START - date(1970, 1, 1)).days * DAY_MS
    time = np.sort(rng.integers(0, DAYS * DAY_MS, rows))
    merchant = rng.integers(0, 40, rows)
    begun = rng.integers(0, 20, 40) * DAY_MS
    compromised = (merchant < 8) & (time > begun[merchant]) & (time < begun[merchant] + 8 * DAY_MS)
    stolen = rng.random(rows) < 0.02
    amount = np.round(rng.uniform(5, 50, rows) * np.where(stolen, 10, 1), 2)
    late = np.where(rng.random(rows) < 0.05, rng.integers(0, 3 * HOUR_MS, rows), 0)
    table = pa.table(
        {
            "transaction_id": [f"t{i}" for i in range(rows)],
            "card_id": [f"c{i}" for i in rng.integers(0, 60, rows)],
            "merchant_id": [f"m{i}" for i in merchant],
            "amount": amount,
            "country": ["CH"] * rows,
            "event_time": start + time,
            "arrival_time": start + time + late,
            "label": (compromised | stolen).astype(np.int8),
            "scenario": np.where(stolen, "stolen", np.where(compromised, "merchant", "genuine")),
        }
    )
    again = table.slice(0, 100)  # sent again an hour later
    again = again.set_column(6, "arrival_time", pa.array(again["arrival_time"].to_numpy() + HOUR_MS))
    return pa.concat_tables([table, again]).combine_chunks()


def reports(table: pa.Table) -> pa.Table:
    """Fraud reports within five days on all frauds and 1% of genuine payments; a fifth is reversed later."""
    rng = np.random.default_rng(6)
    unique = table.slice(0, len(table) - 100)
    fraud = unique["label"].to_numpy() == 1
    first = unique.filter(pa.array(fraud | (rng.random(len(unique)) < 0.01)))
    at = first["arrival_time"].to_numpy() + rng.integers(0, 5 * DAY_MS, len(first))
    back = rng.random(len(first)) < 0.2
    both = pa.concat_tables([first, first.filter(pa.array(back))])
    return pa.table(
        {
            "transaction_id": both["transaction_id"],
            "card_id": both["card_id"],
            "label": ["fraud"] * len(first) + ["genuine"] * int(back.sum()),
            "reported_at": np.concatenate([at, at[back] + rng.integers(1, 9 * DAY_MS, int(back.sum()))]),
        }
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluate") / "history.parquet"
    pq.write_table(history(), path)
    return path


def spikes(table: pa.Table) -> list[bool]:
    """Whether each amount is a spike on its card; the rows are in order of arrival, without repetitions."""
    robust: dict[str, tuple[float, int]] = {}
    result = []
    for card, amount in zip(table["card_id"].to_pylist(), table["amount"].to_pylist(), strict=True):
        mean, count = robust.get(card, (0.0, 0))
        result.append(mean > 0 and amount / mean > SPIKE_RATIO)
        count += 1
        moved = mean + (min(amount, CLIP_RATIO * mean) - mean) / min(count, ROBUST_MEMORY) if mean else amount
        robust[card] = (moved, count)
    return result


def test_features_use_only_reports_before_the_arrival(file):
    """A thousand rows, recomputed in plain Python from the transactions and reports before them."""
    table = history()
    label_table = reports(table)
    source = Source(TransactionFiles(file), Reports(label_table), None, DELAY)
    records = read(source, START, START + timedelta(DAYS))
    assert records.not_decided == 100
    unique = table.slice(0, len(table) - 100)
    unique = unique.take(np.argsort(unique["arrival_time"].to_numpy(), kind="stable"))
    unique = unique.filter(pa.array(unique["arrival_time"].to_numpy() < records.arrival[-1] + 1))
    assert unique["arrival_time"].to_pylist() == records.arrival.tolist()
    spike = spikes(unique)
    arrivals, merchants = unique["arrival_time"].to_pylist(), unique["merchant_id"].to_pylist()
    names = unique["transaction_id"].to_pylist()
    reported = label_table.to_pylist()
    rng = np.random.default_rng(7)
    frauds = records.known.row
    chosen = {*rng.choice(len(unique), 950, replace=False).tolist(), *rng.choice(frauds, 150).tolist()}
    assert len(chosen) >= 1_000
    checked = 0
    for number in sorted(chosen):
        now = arrivals[number]
        seen = [
            row for row in range(len(unique)) if arrivals[row] <= now and merchants[row] == merchants[number]
        ]
        by_then = [report for report in reported if (report["reported_at"] // HOUR_MS + 2) * HOUR_MS <= now]
        by_then.sort(key=lambda report: report["reported_at"])
        verdict = {report["transaction_id"]: report["label"] == "fraud" for report in by_then}
        unripe = (now - DELAY - HOUR_MS) // HOUR_MS
        seen = [row for row in seen if arrivals[row] // HOUR_MS >= unripe - 720]
        ripe = [row for row in seen if arrivals[row] // HOUR_MS < unripe]
        fraud = [row for row in seen if verdict.get(names[row], False)]
        plain = [row for row in fraud if not spike[row]]
        good = [row for row in ripe if row not in fraud]
        last_good = max((arrivals[row] // HOUR_MS for row in good), default=-1)
        streak = [row for row in fraud if arrivals[row] // HOUR_MS > last_good]
        week = [row for row in ripe if arrivals[row] // HOUR_MS >= unripe - 168]
        column = dict(zip(records.names, records.features[number].tolist(), strict=True))
        assert column["merchant_count_7d"] == len(week)
        assert column["merchant_unexplained_7d"] == len(
            [row for row in plain if arrivals[row] // HOUR_MS >= unripe - 168]
        )
        assert column["merchant_count_30d"] == len(ripe)
        assert column["merchant_unexplained_30d"] == len(plain)
        assert column["merchant_streak"] == len(streak)
        if streak:
            assert column["merchant_last_label"] == 1
            assert column["merchant_streak_age"] == (now - arrivals[streak[0]]) / DAY_MS
        elif good:
            assert column["merchant_last_label"] == 0
        if week:
            assert column["merchant_risk_7d"] == len([row for row in week if row in fraud]) / len(week)
        if ripe:
            assert column["merchant_risk_30d"] == len([row for row in ripe if row in fraud]) / len(ripe)
        if plain:
            assert column["merchant_first_unexplained_age"] == (now - arrivals[plain[0]]) / DAY_MS
            assert column["merchant_last_unexplained_age"] == (now - arrivals[plain[-1]]) / DAY_MS
            since = [row for row in good if arrivals[row] // HOUR_MS > arrivals[plain[-1]] // HOUR_MS]
            assert column["merchant_genuine_since"] == len(since)
        checked += bool(fraud)
    assert checked > 300, "too few rows come after a reported fraud at their merchant"


def test_later_transactions_and_reports_change_no_feature(file, tmp_path):
    """Features of the first twenty days stay the same without later rows and if later reports say genuine."""
    table, middle = history(), START + timedelta(20)
    cut = (middle - date(1970, 1, 1)).days * DAY_MS
    label_table = reports(table)
    early = read(Source(TransactionFiles(file), Reports(label_table), None, DELAY), START, middle)
    shorter = tmp_path / "shorter.parquet"
    pq.write_table(table.filter(pa.array(table["arrival_time"].to_numpy() < cut)), shorter)
    before = label_table["reported_at"].to_numpy() < cut
    flipped = np.where(before, label_table["label"].to_numpy(zero_copy_only=False), "genuine")
    turned = label_table.set_column(2, "label", pa.array(flipped, pa.string()))
    again = read(Source(TransactionFiles(shorter), Reports(turned), None, DELAY), START, middle)
    assert early.features.tobytes() == again.features.tobytes()
    assert not before.all()


def test_without_merchant_labels_the_features_equal_the_catalogues(file):
    records = read(Source(TransactionFiles(file), UndatedLabels(DELAY)), START, START + timedelta(DAYS))
    assert records.names == NAMES
    assert records.features.shape == (records.arrival.size, len(COLUMN))
    assert np.array_equal(records.features[:, COLUMN["amount"]], records.amount)
    assert np.unique(records.card).size == records.card.max() + 1 == 60


def test_days_without_transactions_are_refused(file):
    with pytest.raises(ModelError, match="move --train-start"):
        read(Source(TransactionFiles(file), UndatedLabels(DELAY)), START - timedelta(9), START - timedelta(2))


def evaluated(file: Path, directory: Path, *more: str) -> dict:
    """The report of a run with short windows."""
    report = directory / "report.json"
    command = ["evaluate", "--transactions", str(file), "--train-start", "2026-01-05", "--train-days", "7"]
    command += ["--delay-days", "2", "--test-days", "5", "--report", str(report), "--iterations", "20", *more]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(report.read_text())


def test_report_of_one_fold(file, tmp_path):
    result = evaluated(file, tmp_path)
    assert 0 < result["average_precision"] <= 1
    assert result["n_test"] > result["n_fraud"] > 0
    assert result["mean"]["auc_roc"] == result["auc_roc"]
    assert len(result["folds"][0]["card_precision_100_by_day"]) == 5
    assert {scenario["scenario"] for scenario in result["scenarios"]} == {"stolen", "merchant"}
    assert sum(scenario["frauds"] for scenario in result["scenarios"]) == result["n_fraud"]


def test_report_of_folds_with_merchant_labels(file, tmp_path):
    html = tmp_path / "report.html"
    more = ("--folds", "2", "--merchant-labels", "--html", str(html))
    result = evaluated(file, tmp_path, *more)
    assert len(result["auc_roc"]) == len(result["n_fraud"]) == 2
    assert result["mean"]["average_precision"] == pytest.approx(np.mean(result["average_precision"]))
    assert result["std"]["average_precision"] == pytest.approx(np.std(result["average_precision"]))
    assert result["features"][-len(MERCHANT_NAMES) :] == list(MERCHANT_NAMES)
    assert [fold["test_start"] for fold in result["folds"]] == ["2026-01-14", "2026-01-21"]
    assert evaluated(file, tmp_path, *more) == result, "the same data and seed gave another report"
    text = html.read_text()
    assert text.count("<svg") == 4
    for svg in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")
    assert not re.search(r'(?:href|src)="(?!#)', text), "the page needs another file"


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_every_algorithm_finds_the_frauds(file, tmp_path, algorithm):
    more = ("--test-days", "15", "--alert-budget", "0.03")
    result = evaluated(file, tmp_path, "--algorithm", algorithm.value, *more)
    assert result["algorithm"] == algorithm
    assert result["auc_roc"] > 0.5
    # amounts betray a stolen card; only labels of merchants, which are left out here, betray a merchant
    (stolen,) = (scenario for scenario in result["scenarios"] if scenario["scenario"] == "stolen")
    assert stolen["alerted"] > stolen["frauds"] / 2


def test_training_uses_the_labels_known_at_the_begin_of_the_test(file, tmp_path):
    label_file = tmp_path / "labels.parquet"
    table, label_table = history(), reports(history())
    pq.write_table(label_table, label_file)
    dated = evaluated(file, tmp_path, "--labels", str(label_file))["folds"][0]
    begin = (date(2026, 1, 5) - date(1970, 1, 1)).days * DAY_MS
    test_begin = begin + 9 * DAY_MS
    arrived = dict(zip(table["transaction_id"].to_pylist(), table["arrival_time"].to_pylist(), strict=True))
    arrived |= dict(zip(*(table.slice(0, len(table) - 100)[name].to_pylist() for name in
                          ("transaction_id", "arrival_time")), strict=True))  # fmt: skip
    verdict: dict[str, str] = {}
    for report in sorted(label_table.to_pylist(), key=lambda item: item["reported_at"]):
        if report["reported_at"] <= test_begin:
            verdict[report["transaction_id"]] = report["label"]
    frauds = [name for name, label in verdict.items() if label == "fraud"]
    wanted = [name for name in frauds if begin <= arrived[name] < begin + 7 * DAY_MS]
    assert dated["n_train_fraud"] == len(wanted) > 0
    pq.write_table(label_table.drop_columns(["reported_at"]), label_file)
    undated = evaluated(file, tmp_path, "--labels", str(label_file))["folds"][0]
    assert undated["n_fraud"] == dated["n_fraud"], "in the end, dated and undated labels name the same frauds"
    assert undated["n_train_fraud"] != dated["n_train_fraud"]


def test_unknown_values_are_drawn_as_gaps(file, tmp_path):
    result = evaluated(file, tmp_path, "--folds", "2")
    before, points = page(result).count("unknown"), page(result).count(f"fill: {BLUE}")
    result["folds"][0]["auc_roc"] = None
    result["mean"]["card_precision_100"] = None
    assert page(result).count("unknown") == before + 2
    assert page(result).count(f"fill: {BLUE}") == points - 1


@pytest.mark.parametrize(
    ("more", "least_precision", "least_cards"),
    [((), 0.30, 0.09), (("--merchant-labels",), 0.75, 0.29)],
    ids=["cards-only", "merchant-labels"],
)
def test_figures_on_the_handbooks_validation_weeks(tmp_path, more, least_precision, least_cards):
    report = tmp_path / "report.json"
    command = ["evaluate", "--transactions", str(handbook_file("transactions"))]
    command += ["--train-start", "2018-06-20", "--folds", "4", "--report", str(report), *more]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    created = json.loads(report.read_text())
    assert created["mean"]["average_precision"] >= least_precision
    assert created["mean"]["card_precision_100"] >= least_cards
    assert created["n_test"] == [57_182, 57_800, 57_931, 58_505]
    assert created["n_fraud"] == [416, 411, 351, 374]
