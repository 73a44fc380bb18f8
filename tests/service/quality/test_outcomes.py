"""The store behind live precision equals naive counts of all records, whatever kills it."""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.catalogue import DAY_MS
from feature_store.utc import date_of
from service.labels.errors import OutcomesError
from service.labels.records import Alert, Label, alert_of
from service.quality import counts
from service.quality.counts import Quality
from service.quality.outcomes import DAYS, SLICES, Outcomes
from service.quality.parts import QualityParts
from service.settings import ServiceSettings
from streaming_job.decode.labels import Position

pytestmark = pytest.mark.unit

RULES = {1: ("score",), 2: ("score", "velocity_5m"), 3: ("blocked_card",)}
FIRST = 20_000
"""Day of the first alerts."""
ALERTS, LABELS, CHARGEBACKS = NAMES = "fraud-alerts", "labels", "chargebacks"
IDS = {name: f"id of {name}" for name in NAMES}


def alert(card: str, transaction: str, day: int = FIRST) -> Alert:
    """The alert of a transaction, always the same."""
    number = int(transaction)
    return alert_of(
        {
            "card_id": card,
            "transaction_id": transaction,
            "arrival_time": day * DAY_MS + number,
            "rules": list(RULES[number % 3 + 1]),
            "model": {"name": "card-fraud", "version": str(number % 2)},
            "rollout_id": f"r{card}",
            "source": {"partition": 0, "offset": number},
        }
    )


def label(card: str, transaction: str, day: int, fraud: bool, offset: int = 0, topic: int = 0) -> Label:
    return Label(card, transaction, (day * DAY_MS, topic, offset), fraud)


def recount(records: list[Alert | Label], days: int = DAYS) -> Counter[tuple[int, Any, str]]:
    """What `Outcomes.counts` must return, from all records."""
    alerts: dict[tuple[str, str], Alert] = {}
    labels: dict[tuple[str, str], tuple[Position, bool]] = {}
    for record in records:
        key = record.card_id, record.transaction_id
        if isinstance(record, Alert):
            alerts.setdefault(key, record)
        else:
            labels[key] = max(
                labels.get(key, (record.position, record.fraud)), (record.position, record.fraud)
            )
    newest = max((one.position[0] // DAY_MS for one in alerts.values()), default=0)
    result = Counter[tuple[int, Any, str]]()
    for key, one in alerts.items():
        outcome = "open" if key not in labels else "fraud" if labels[key][1] else "genuine"
        if (day := one.position[0] // DAY_MS) > newest - days:
            result[day, one.kind, outcome] += 1
    return result


class Topic:
    """A topic, and how far its reader, which may be killed at any time, has got."""

    def __init__(self, store: Outcomes, name: str, records: list[Alert | Label]) -> None:
        self.records = records
        self._name = name
        self.resume(store)

    def resume(self, store: Outcomes) -> None:
        self.next = store.resume(IDS, ALERTS).get((self._name, 0), 0)

    def take(self, store: Outcomes, count: int) -> None:
        part = self.records[self.next : self.next + count]
        store.take(part, {(self._name, 0): self.next + len(part)})
        self.next += len(part)


def counted(store: Outcomes) -> Counter[tuple[int, Any, str]]:
    return Counter({(day, kind, outcome): alerts for day, kind, outcome, alerts in store.counts()})


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Alert], list[Label], list[Label]]:
    """Alerts of ten days, some written twice; labels of their transactions, none of which precedes it."""
    alerts, topics = list[Alert](), (list[Label](), list[Label]())
    number, day = 0, FIRST
    for _ in range(draw(st.integers(0, 25))):
        day += draw(st.sampled_from((0, 0, 0, 1, 2)))
        if alerts and draw(st.integers(0, 3)) == 0:
            alerts.append(draw(st.sampled_from(alerts[-3:])))
            continue
        number += 1
        alerts.append(alert(draw(st.sampled_from("ab")), str(number), day))
    for one in alerts:
        for _ in range(draw(st.sampled_from((0, 1, 1, 2)))):
            topic = draw(st.integers(0, 1))
            arrival = one.position[0] // DAY_MS + draw(st.integers(0, 3))
            position = arrival * DAY_MS, topic, len(topics[topic])
            topics[topic].append(Label(one.card_id, one.transaction_id, position, draw(st.booleans())))
    unrelated = label("c", "1", FIRST, fraud=True, offset=len(topics[0]))
    return alerts, [*topics[0], unrelated], topics[1]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("take", "take", "take", "kill", "torn", "again")),
        st.integers(0, 2),
        st.integers(0, 6),
    ),
    max_size=25,
)


class Sidecar:
    """A store and its three topics; `kill` leaves of it what is on the disk."""

    def __init__(self, directory: Path, written: Iterable[list[Any]], days: int) -> None:
        self._directory, self._days, self._number = directory, days, 0
        self.store = Outcomes(directory / "0" / "outcomes.sqlite", days)
        self.topics = [Topic(self.store, name, records) for name, records in zip(NAMES, written, strict=True)]

    def kill(self) -> None:
        """SIGKILL, and a new process: the files are as the process left them, the memory is gone."""
        before = self.store
        copy = self._directory / str(self._number + 1)
        shutil.copytree(self._directory / str(self._number), copy)
        self._number += 1
        self.store = Outcomes(copy / "outcomes.sqlite", self._days)
        before.close()
        for topic in self.topics:
            topic.resume(self.store)

    def kill_before_the_commit(self, step: tuple[int, int]) -> None:
        """The process ends when the records are in the database, but not committed."""
        topic = self.topics[step[0]]

        def expire(*_: object) -> None:
            shutil.copytree(self._directory / str(self._number), self._directory / "torn")
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.store, "_expire", expire)
            with pytest.raises(KeyboardInterrupt):
                topic.take(self.store, step[1])
        shutil.rmtree(self._directory / str(self._number))
        (self._directory / "torn").rename(self._directory / str(self._number))
        self.kill()


@examples(40, 2_000)
@given(logs(), STEPS, st.sampled_from((DAYS, 3)))
def test_counts_equal_those_of_all_records_whatever_is_killed_or_read_twice(
    written: tuple[list[Alert], list[Label], list[Label]], steps: list[Any], days: int
) -> None:
    with TemporaryDirectory() as directory:
        sidecar = Sidecar(Path(directory), written, days)
        for what, *step in steps:
            if what == "take":
                sidecar.topics[step[0]].take(sidecar.store, step[1])
            elif what == "kill":
                sidecar.kill()
            elif what == "torn":
                sidecar.kill_before_the_commit((step[0], step[1] or 1))
            else:
                for topic in sidecar.topics:
                    topic.next = 0
        for topic in sidecar.topics:
            topic.take(sidecar.store, len(topic.records))
        expected = recount([*written[0], *written[1], *written[2]], days)
        assert counted(sidecar.store) == expected
        sidecar.kill()
        assert counted(sidecar.store) == expected
        sidecar.store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Outcomes]:
    result = Outcomes(tmp_path / "outcomes.sqlite", days=3)
    yield result
    result.close()


def test_more_alerts_than_memory_kept_are_still_found_by_their_labels(store: Outcomes) -> None:
    alerts = Topic(store, ALERTS, [alert("a", str(number)) for number in range(60_000)])
    labels = Topic(store, LABELS, [label("a", "0", FIRST, fraud=True)])
    while alerts.next < len(alerts.records):
        alerts.take(store, 10_000)
    labels.take(store, 1)
    (rollout,) = (quality for quality in counts.qualities(store.counts()) if quality.by == "rollout")
    assert (rollout.fraud, rollout.genuine, rollout.open) == (1, 0, 59_999)


def test_counts_by_day_are_those_of_the_arrival_of_the_transaction(store: Outcomes) -> None:
    alerts = Topic(store, ALERTS, [alert("a", "3"), alert("a", "6", FIRST + 1), alert("a", "9", FIRST + 1)])
    labels = Topic(store, LABELS, [label("a", "6", FIRST + 2, fraud=True)])
    for topic in (alerts, labels):
        topic.take(store, 3)
    of_rule = [
        (date_of(day.newest), day.fraud, day.genuine, day.open)
        for day in counts.by_day(store.counts())
        if day.by == "rule"
    ]
    assert of_rule == [("2024-10-05", 1, 0, 1), ("2024-10-04", 0, 0, 1)]


def test_rows_of_old_days_leave_the_file(store: Outcomes, tmp_path: Path) -> None:
    old = [alert("a", str(number)) for number in range(2_000)]
    topic = Topic(store, ALERTS, [*old, alert("b", "1", FIRST + 3)])
    topic.take(store, len(topic.records))
    for _ in range(SLICES):
        topic.take(store, 0)
    store.close()
    with sqlite3.connect(tmp_path / "outcomes.sqlite") as database:
        assert database.execute("SELECT count(*) FROM transactions").fetchone() == (1,)
        assert database.execute("SELECT sum(alerts) FROM counts").fetchone() == (1,)


def test_another_topic_of_alerts_is_another_log(store: Outcomes) -> None:
    first = Topic(store, ALERTS, [alert("a", "1")])
    labels = Topic(store, LABELS, [label("a", "1", FIRST, fraud=True)])
    first.take(store, 1)
    labels.take(store, 1)
    assert store.resume({**IDS, ALERTS: "new id"}, ALERTS) == {}  # labels are read again, too
    assert store.counts() == []
    store.take([*labels.records, *first.records], {(LABELS, 0): 1, (ALERTS, 0): 1})
    assert counted(store) == recount([*first.records, *labels.records])


def test_a_topic_of_labels_that_was_created_again_is_read_again(store: Outcomes) -> None:
    alerts = Topic(store, ALERTS, [alert("a", "1")])
    labels = Topic(store, LABELS, [label("a", "1", FIRST, fraud=True)])
    for topic in (alerts, labels):
        topic.take(store, 1)
    assert store.resume({**IDS, LABELS: "new id"}, ALERTS) == {(ALERTS, 0): 1}
    assert counted(store) == recount([*alerts.records, *labels.records])


def test_one_sidecar_at_a_time_uses_the_file(store: Outcomes, tmp_path: Path) -> None:
    Topic(store, ALERTS, []).take(store, 0)
    second = Outcomes(tmp_path / "outcomes.sqlite")
    with pytest.raises(OutcomesError, match=r"locked; give each sidecar a work directory of its own"):
        second.resume(IDS, ALERTS)
    assert second.counts() == []


def test_other_users_can_open_nothing(tmp_path: Path) -> None:
    store = Outcomes(tmp_path / "sidecar" / "job" / "outcomes.sqlite")
    store.resume(IDS, ALERTS)
    created = sorted((tmp_path / "sidecar").rglob("*"))
    assert "outcomes.sqlite-wal" in [path.name for path in created]
    assert [path for path in (tmp_path / "sidecar", *created) if path.stat().st_mode & 0o077] == []
    store.close()


def test_a_damaged_file_is_an_error_until_it_is_deleted(tmp_path: Path) -> None:
    file = tmp_path / "outcomes.sqlite"
    file.write_bytes(b"no database at all, but long enough for a header" * 100)
    store = Outcomes(file)
    with pytest.raises(OutcomesError, match=r"if the file is damaged, delete it"):
        store.resume(IDS, ALERTS)
    with pytest.raises(OutcomesError, match="closed"):  # nothing is counted before `resume` has succeeded
        store.take([alert("a", "1")], {})
    file.unlink()
    assert store.resume(IDS, ALERTS) == {}
    store.close()


def test_without_a_file_alerts_are_counted_until_the_end_of_the_process() -> None:
    store = Outcomes(None)
    topic = Topic(store, ALERTS, [alert("a", "1")])
    topic.take(store, 1)
    assert counted(store) == recount(topic.records)
    store.close()
    assert store.counts() == []


def test_precision_is_of_alerts_with_a_label() -> None:
    assert Quality("rule", "score", 3, 1, 96, FIRST).precision == 0.75
    assert Quality("rule", "score", 0, 0, 96, FIRST).precision is None


def test_counts_are_not_called_complete_while_the_brokers_do_not_answer() -> None:
    parts = QualityParts(ServiceSettings(bootstrap_servers="none"))
    parts._reader._behind = set()
    assert parts.waiting_for is None
    parts._reader.trouble = "new partitions of labels cannot be looked up, and are not read: no broker"
    assert parts.waiting_for == parts._reader.trouble
