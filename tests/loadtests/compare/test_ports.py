"""The ports compute what ours computes: every feature, scores, repetitions and alerts."""

import subprocess
from pathlib import Path

import orjson
import pytest
from thoroughness import only_thorough

from deploy.local import java
from loadtests.compare.exported import exported
from loadtests.compare.kafka_streams.build import build, compiler

from small_log import POLICY, require_equal, small_log

pytestmark = pytest.mark.unit
RATES = [5.0, 0.007]
"""Minutes, and a week."""


@only_thorough
@pytest.mark.skipif(compiler() is None, reason="there is no javac beside java")
@pytest.mark.parametrize("rate", RATES)
def test_java_decides_as_ours(rate: float, tmp_path: Path) -> None:
    log = small_log(rate)
    model = tmp_path / "model.json"
    model.write_bytes(orjson.dumps(exported(log.scorer, POLICY)))
    answer = subprocess.run(
        [java.find().executable, "-cp", build(tmp_path / "classes"), "compare.Replay", str(model)],
        input=b"\n".join(map(orjson.dumps, log.lines)), capture_output=True, check=True,
    )  # fmt: skip
    require_equal(log, [orjson.loads(line) for line in answer.stdout.splitlines()])
