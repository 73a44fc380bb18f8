"""The ports to Java and to Python compute the same features, scores, repetitions and alerts as the job."""

import subprocess
from pathlib import Path

import orjson
import pytest
from harness.tools import needs
from small_log import POLICY, require_equal, small_log
from thoroughness import only_thorough

from deploy.local import java
from loadtests.compare.exported import exported
from loadtests.compare.kafka_streams.build import build
from loadtests.compare.quix.deciding import Model, decide, json_features
from loadtests.compare.quix.features import Row, new_card

pytestmark = pytest.mark.unit
RATES = [5.0, 0.007]
"""Transactions per second of event time: the log spans minutes, or a week."""


@only_thorough
@needs("javac")
@pytest.mark.parametrize("rate", RATES)
def test_java_decides_like_the_job(rate: float, tmp_path: Path) -> None:
    log = small_log(rate)
    model = tmp_path / "model.json"
    model.write_bytes(orjson.dumps(exported(log.scorer, POLICY)))
    answer = subprocess.run(
        [java.find().executable, "-cp", build(tmp_path / "classes"), "compare.Replay", str(model)],
        input=b"\n".join(map(orjson.dumps, log.lines)), capture_output=True, check=True,
    )  # fmt: skip
    require_equal(log, [orjson.loads(line) for line in answer.stdout.splitlines()])


@pytest.mark.parametrize("rate", RATES)
def test_python_decides_like_the_job(rate: float, tmp_path: Path) -> None:
    log = small_log(rate)
    file = tmp_path / "model.json"
    file.write_bytes(orjson.dumps(exported(log.scorer, POLICY)))
    model = Model(file)
    cards: dict[str, Row] = {}
    result: list[Row | None] = []
    for line in log.lines:
        tx = line["transaction"] | {"arrival": line["arrival"]}
        card = cards.setdefault(tx["card_id"], new_card())
        decided = decide(model, card, tx, line["profile"] and line["profile"]["after"])
        # as stored in the state store
        cards[tx["card_id"]] = orjson.loads(orjson.dumps(card))
        result.append(
            decided
            and {**decided, "alert": bool(decided["rules"]), "features": json_features(decided["features"])}
        )
    require_equal(log, result)
