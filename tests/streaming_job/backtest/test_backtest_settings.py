"""Which of the job's archived progress counts in a backtest: that whose Kafka transactions are archived.

fraud-alerts   [ tail of 23:50 )
job-progress   [ file that midnight has closed          )[ tail
settled                          ^
"""

from pathlib import Path

import orjson
import pytest
from harness.archives import batch, write
from harness.progress_records import progress

from feature_store.archive import commit
from feature_store.archive.storage import Storage
from feature_store.catalogue import DAY_MS
from streaming_job.backtest.log import ArchiveLog, BacktestError
from streaming_job.backtest.settings import BacktestSettings, decided_by_the_job
from streaming_job.log.partitioner import Layout, Partitioner

pytestmark = pytest.mark.unit
MIDNIGHT = 20_000 * DAY_MS
MINUTE = 60_000


def decided(place: Path, settled: dict[int, int] | None) -> int:
    """Up to which offset the job has decided by an archive of a commit each ten minutes, 100 offsets each."""
    rows = [
        (number, MIDNIGHT + (number - 20) * 10 * MINUTE, b"card-fraud", orjson.dumps(progress(number + 1)))
        for number in range(24)
    ]
    write(place, {"job_progress": {0: [batch(rows)]}}, names={"job_progress": "job-progress"})
    if settled is not None:
        commit.settle(Storage(str(place)), settled)
    settings = BacktestSettings(work_dir=place, job_id="card-fraud")
    settings = settings.model_copy(update={"key_groups": 1})
    told = decided_by_the_job(ArchiveLog(str(place)), settings)
    assert (told.moved_at, told.set_aside) == (None, {})
    return told.positions["transactions", 0]


def test_progress_whose_alerts_are_not_archived_yet_does_not_count(tmp_path: Path) -> None:
    for settled, expected in ((24, 2_400), (20, 2_000), (19, 1_900), (3, 300)):
        assert decided(tmp_path / str(settled), {0: settled}) == expected
    assert decided(tmp_path / "older release", None) == 2_400


def test_while_the_archiver_catches_up_nothing_is_known_to_be_archived(tmp_path: Path) -> None:
    with pytest.raises(BacktestError, match="let `fraud archive run` catch up"):
        decided(tmp_path, {})


def test_what_is_settled_stays_when_the_archive_gets_another_topic(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    commit.create(storage, {"t": "t"})
    commit.settle(storage, {0: 5, 1: 7})
    commit.create(storage, {"u": "u"})
    assert commit.settled_of(storage) == {0: 5, 1: 7}
    assert commit.names_of(storage) == {"t": "t", "u": "u"}


@pytest.mark.parametrize(("topic", "expected"), [("transactions", MIDNIGHT), ("former", 0), (None, 0)])
def test_a_move_of_the_cards_is_known_by_the_takeover(
    tmp_path: Path, topic: str | None, expected: int
) -> None:
    takeover = {
        "query_id": "q0", "release": "0.1.0+0123abcd", "key_groups": 1, "commit_id": 1, "at": MIDNIGHT,
        "asked_by": "ines", "moved": True,
    }  # fmt: skip
    if topic is not None:
        takeover["drained"] = {"layout": Layout(topic, Partitioner.MURMUR2, 1).to_json(), "ends": [5]}
    told = progress(takeover=takeover, rollouts_set_aside={"7": "model_refused"})
    row = (0, MIDNIGHT, b"card-fraud", orjson.dumps(told))
    write(tmp_path, {"job_progress": {0: [batch([row])]}}, names={"job_progress": "job-progress"})
    settings = BacktestSettings(work_dir=tmp_path, job_id="card-fraud").model_copy(update={"key_groups": 1})
    decided = decided_by_the_job(ArchiveLog(str(tmp_path)), settings)
    assert (decided.moved_at, decided.set_aside) == (expected, {7: "model_refused"})
