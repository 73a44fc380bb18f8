"""From a history of transactions to a registered model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from feature_store import catalogue
from feature_store.catalogue import DAY_MS
from feature_store.merchants.catalogue import ALL_NAMES, computed
from feature_store.training import training_set
from feature_store.training.columns import TrainingSetError
from feature_store.training.labels import LabelError
from feature_store.training.merchant_payments import MerchantLabels, build
from models import pipeline, tracking
from models.algorithms import QUICK
from models.commands import app
from models.errors import ModelError
from models.loading import load
from models.pipeline import fit_and_register, outcomes
from models.registry import ModelRef, training_scores
from models.train import Quality

pytestmark = pytest.mark.without_stack


START = 1_767_225_600_000
"""2026-01-01."""


def history(rows: int = 6_000) -> pa.Table:
    """Forty days of transactions; frauds are twenty times the card's usual amount."""
    rng = np.random.default_rng(1)
    fraud = rng.random(rows) < 0.03
    card = rng.integers(0, 100, rows)
    amount = np.round(rng.uniform(5, 15, rows) * np.where(fraud, 20, 1), 2)
    return pa.table(
        {
            "transaction_id": [f"t{i}" for i in range(rows)],
            "card_id": [f"c{i}" for i in card],
            "merchant_id": [f"m{i}" for i in rng.integers(0, 50, rows)],
            "amount": amount,
            "country": ["CH"] * rows,
            "event_time": START + np.sort(rng.integers(0, 40 * DAY_MS, rows)),
            "label": fraud.astype(np.int8),
        }
    )


@pytest.mark.unit
def test_labels_are_joined_by_card_and_transaction() -> None:
    transactions = pa.table({"card_id": ["a", "b", "a"], "transaction_id": ["1", "1", "2"]})
    labels = pa.table(
        {"card_id": ["b", "a"], "transaction_id": ["1", "2"], "label": ["fraud", "genuine"]},
    )
    assert outcomes(transactions, labels).tolist() == [False, True, False]
    own = transactions.append_column("label", pa.array([1, 0, None]))
    assert outcomes(own, None).tolist() == [True, False, False]


@pytest.mark.unit
def test_history_without_labels_is_refused() -> None:
    transactions = pa.table({"card_id": ["a"], "transaction_id": ["1"]})
    with pytest.raises(LabelError, match="--labels"):
        outcomes(transactions, None)
    with pytest.raises(LabelError, match="no column 'label'"):
        outcomes(transactions, transactions)


@pytest.mark.unit
@pytest.mark.parametrize(
    "command", [["train"], ["evaluate", "--train-start", "2026-01-01", "--report", "report.json"]]
)
def test_files_of_which_only_some_have_labels_are_refused(command: list[str], tmp_path: Path) -> None:
    """Else all transactions of the others would count as genuine."""
    pq.write_table(history(100), tmp_path / "a.parquet")
    pq.write_table(history(100).drop_columns(["label"]), tmp_path / "b.parquet")
    arguments = [*command, "--transactions", str(tmp_path)]
    fault = CliRunner().invoke(app, arguments, env={"FRAUD_MLFLOW_TRACKING_URI": "sqlite://"}).exception
    assert isinstance(fault, TrainingSetError)
    assert f"only some files have a column 'label', and {tmp_path / 'b.parquet'} has none" in str(fault)


@pytest.mark.integration
def test_a_model_is_trained_evaluated_registered_and_loaded(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    table = history()
    twice = pa.concat_tables([table, table.slice(len(table) - 1)])  # the last transaction repeated
    trained = fit_and_register(twice, uri, learner=replace(QUICK, iterations=30))
    assert trained.quality.auc_roc > 0.95
    assert trained.quality.alert_share <= 0.005
    histogram = training_scores(trained.ref, uri)
    assert histogram is not None
    assert sum(histogram["counts"]) > 1_000
    scorer = load(trained.ref, uri, tmp_path / "cache")
    assert scorer.feature_names == catalogue.NAMES
    x = training_set.build(table)
    fraud = table["label"].to_numpy() == 1
    scores = scorer.score(x)
    assert np.median(scores[fraud]) > 10 * np.median(scores[~fraud])
    top = scorer.feature_names[int(scorer.explain(x[fraud]).mean(axis=0).argmax())]
    assert top.startswith(("amount", "ratio", "zscore", "sum", "max", "mean"))


@pytest.mark.integration
def test_mlflow_has_the_parameters_and_results_of_a_run(tmp_path: Path) -> None:
    uri, learner = f"sqlite:///{tmp_path}/mlflow.db", replace(QUICK, iterations=5)
    first = fit_and_register(history(), uri, learner=learner, sources={"transactions_sha256": "ab"})
    again = fit_and_register(history(), uri, learner=learner, alert_cost=2.0)
    with tracking.registry(uri) as client:
        versions = [client.get_model_version(of.ref.name, of.ref.version) for of in (first, again)]
        runs = [client.get_run(version.run_id) for version in versions]
        files = {artifact.path for artifact in client.list_artifacts(versions[0].run_id)}
    params = [run.data.params for run in runs]
    assert {"curves.html", "curves.json", "model-card.md"} <= files
    assert runs[0].data.metrics["average_precision"] == first.quality.average_precision
    assert params[0]["transactions_sha256"] == "ab"
    assert (params[0]["seed"], params[0]["alert_budget"], params[1]["alert_cost"]) == ("0", "0.005", "2.0")
    for name in ("training_set_sha256", "code_version"):
        assert params[0][name] == params[1][name]
        assert params[0][name] in versions[0].description
    assert "## Intended use" in versions[0].description
    # an alert costs 2, a fraud about 200: more alerts are worth their cost than the alert budget allows
    assert again.quality.alert_share > first.quality.alert_share
    assert again.quality.recall > first.quality.recall


@pytest.mark.integration
def test_a_model_of_merchant_label_features_is_loaded_and_uses_them(tmp_path: Path) -> None:
    """All payments at three merchants are frauds but look like any others: only their labels differ."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    compromised = pc.is_in(history()["merchant_id"], pa.array(["m1", "m2", "m3"]))
    table = history().set_column(6, "label", compromised.cast(pa.int8()))
    learner = replace(QUICK, iterations=30)
    blind = fit_and_register(table, uri, learner=learner)
    trained = fit_and_register(table, uri, learner=learner, merchant_labels=True, label_delay_ms=2 * DAY_MS)
    assert trained.ref.features == computed(merchants=True)
    assert blind.quality.average_precision < 0.3 < 0.9 < trained.quality.average_precision
    scorer = load(trained.ref, uri, tmp_path / "cache")
    assert scorer.feature_names == ALL_NAMES
    assert (scorer.label_delay_ms, load(blind.ref, uri, tmp_path / "cache").label_delay_ms) == (
        2 * DAY_MS,
        None,
    )
    assert scorer.quantiles is not None
    x = build(table, MerchantLabels.of(None, 2 * DAY_MS))
    contributions = scorer.explain(x[-200:][np.asarray(table["label"])[-200:] == 1])
    assert ALL_NAMES[int(contributions.mean(axis=0).argmax())].startswith("merchant_")


@pytest.mark.unit
@pytest.mark.parametrize("threshold", [0.9999999330000001, 5.390960000000001e-07])
def test_the_command_to_promote_a_model_has_its_threshold_unrounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threshold: float
) -> None:
    """Rounded to six digits, the first is 1, which hardly any score reaches; the second is twice as much."""
    path, quality = tmp_path / "history.parquet", Quality(1.0, 1.0, threshold, 0.005, 1.0, 1.0)
    pq.write_table(history(10), path)
    ref = ModelRef("card-fraud", "1", "models:/card-fraud/1", "ab" * 32, ("amount:1",))
    monkeypatch.setattr(
        pipeline, "fit_and_register", lambda *_, **__: pipeline.TrainingResult(ref, quality, 9, 1)
    )
    arguments = ["train", "--tracking-uri", "none", "--transactions", str(path)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    (command,) = (line for line in done.output.splitlines() if line.startswith("next: "))
    assert float(command.split(" --threshold ")[1].split()[0]) == threshold


@pytest.mark.integration
def test_the_commands_train_list_and_name_their_errors(tmp_path: Path) -> None:
    uri, path = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "history.parquet"
    pq.write_table(history(), path)
    runner = CliRunner()
    arguments = ["train", "--tracking-uri", uri, "--transactions", str(path), "--iterations", "10"]
    done = runner.invoke(app, arguments, catch_exceptions=False)
    assert "registered card-fraud/1" in done.output
    done = runner.invoke(app, ["list", "--tracking-uri", uri], catch_exceptions=False)
    assert done.output.startswith("card-fraud/1  digest ")
    assert "average_precision" in done.output
    missing = runner.invoke(app, ["train", "--tracking-uri", uri, "--transactions", "absent.parquet"])
    assert isinstance(missing.exception, TrainingSetError)
    more = ["--merchant-labels", "--label-delay-days", "2"]
    done = runner.invoke(app, [*arguments, *more], catch_exceptions=False)
    needs = "the model needs a job with FRAUD_MERCHANT_FACTS=true and FRAUD_LABEL_DELAY_MS=172800000"
    assert needs in done.output
    done = runner.invoke(app, ["list", "--tracking-uri", uri], catch_exceptions=False)
    assert f"features {len(ALL_NAMES)}" in done.output.splitlines()[0]
    nothing = runner.invoke(app, ["list", "--tracking-uri", uri, "--name", "none"])
    assert isinstance(nothing.exception, ModelError)
