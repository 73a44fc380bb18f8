"""The parts of a replay that need no servers: its record, its plan, and when it yields to the live job."""

import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import psutil
import pytest
from harness import settings_of_nowhere
from typer.testing import CliRunner

from deploy.replay import commands, dropping, plan, record, rollout, status, switching
from deploy.replay.checkpoints import Checkpoints, _LocalCheckpoint
from deploy.replay.plan import Facts, made
from deploy.replay.record import OWN, Replay, ReplayError
from deploy.replay.running import STOPPED_S, TURN_S, Limits, Shown, Speed, Yielding
from feature_store.catalogue import DAY_MS
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import NO_DEMANDS, Demands, Event, installation
from models.rollouts.state import FIRST_DEMANDS, Line
from service.replays.progress import State, read
from service.rollouts.drawing import apply_events
from streaming_job import environment
from streaming_job.contracts.topic import Component, Operation
from streaming_job.permissions import Resource, needed
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.settings import JobSettings

pytestmark = pytest.mark.unit

MODEL = ModelRef("card-fraud", "2", "models:/card-fraud/2", "ab" * 32, ("amount:1",))
ROLLOUT = json.loads(json.dumps({"model": asdict(MODEL), "policy": asdict(Policy(0.5, 6)), "created_at": 5}))
FACTS = Facts({0: 0, 1: 0}, {0: 600, 1: 400}, 250.0, None, 1_000, 1 << 40, 1 << 40, 1_000.0, is_measured=True)


@pytest.fixture
def live(tmp_path: Path) -> JobSettings:
    return settings_of_nowhere.settings(work_dir=tmp_path, checkpoint=str(tmp_path / "checkpoint"))


def replay_of(live: JobSettings, **changes: object) -> Replay:
    new = Replay(
        "better", live.job_id, live.checkpoint, live.key_groups, live.topics.model_rollouts, 1,
        {"0": 600, "1": 400}, file=record.file_of(live.work_dir, "better"),
    )  # fmt: skip
    return replace(new, **changes)  # type: ignore[arg-type]


def test_a_replay_shares_the_inputs_and_has_all_outputs_for_itself(live: JobSettings) -> None:
    settings = replay_of(live).settings(live)
    own = {
        field
        for field in type(live.topics).model_fields
        if getattr(settings.topics, field) != getattr(live.topics, field)
    }
    assert own == set(OWN)
    assert settings.topics.fraud_alerts == "fraud-alerts-replay-better"
    assert settings.job_id != live.job_id
    assert settings.checkpoint != live.checkpoint
    changed = replay_of(live, rollout=ROLLOUT).settings(live)
    assert changed.topics.model_rollouts == "model-rollouts-replay-better"


def test_the_permissions_of_replays_change_nothing_that_is_not_of_a_replay(live: JobSettings) -> None:
    changes = {Operation.WRITE, Operation.CREATE, Operation.DELETE}
    for permission in needed(Component.REPLAY, live):
        if changes & {*permission.operations}:
            assert permission.name.endswith("-replay-"), permission


def test_the_permissions_of_replays_suffice_for_the_second_job_of_each(live: JobSettings) -> None:
    def granted(resource: Resource, name: str) -> set[Operation]:
        return {
            operation
            for permission in needed(Component.REPLAY, live)
            if permission.resource is resource
            and (name.startswith(permission.name) if permission.is_prefix else name == permission.name)
            for operation in permission.operations
        }

    for replay in (replay_of(live), replay_of(live, rollout=ROLLOUT)):
        second = replay.settings(live)
        for permission in needed(Component.JOB, second):
            allowed = granted(permission.resource, permission.name)
            implied = {Operation.DESCRIBE} if allowed else set()
            assert {*permission.operations} <= allowed | implied, permission
        for field in replay.own_fields:
            name = getattr(second.topics, field)
            assert {Operation.CREATE, Operation.DELETE} <= granted(Resource.TOPIC, name)
        assert Operation.DELETE in granted(Resource.GROUP, second.job_id)
    for name in live.topics.model_dump().values():
        assert Operation.WRITE not in granted(Resource.TOPIC, name)


def test_the_record_is_read_as_it_was_saved_and_survives_the_settings_of_a_switch(live: JobSettings) -> None:
    saved = replay_of(live, rollout=ROLLOUT).saved(process=(17, 5.5), live_query="q")
    loaded, original = record.load(live, "better")
    assert loaded == saved
    after = saved.successor(live)
    assert (after.predecessor, after.job_id, after.key_groups) == ("q", live.job_id, 1)
    assert after.predecessor_checkpoint == saved.settings(live).checkpoint
    # the installation has the successor's settings now
    assert record.load(after, "better")[1] == original == saved.original(live)
    assert saved.successor(original) == after
    with pytest.raises(ReplayError, match="FRAUD_JOB_ID"):
        record.load(live.model_copy(update={"job_id": "another"}), "better")


@pytest.mark.parametrize("name", ["", "Better", "../x", "a b", "x" * 41, "replay-better"])
def test_a_name_has_to_suit_topics_and_files(live: JobSettings, name: str) -> None:
    with pytest.raises(ReplayError, match="cannot be part of"):
        record.file_of(live.work_dir, name)


def test_a_damaged_record_is_an_error(live: JobSettings) -> None:
    replay_of(live).saved()
    record.file_of(live.work_dir, "better").write_text('{"name": "bet')
    with pytest.raises(ReplayError, match="checkpoints that end with -better"):
        record.find(live.work_dir, "better")


def test_a_replay_is_not_dropped_between_the_claims_of_a_switch_and_its_seam(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = replay_of(live, live_query="live").saved()
    monkeypatch.setattr(dropping, "writers", lambda _: ("live", "successor"))
    with pytest.raises(ReplayError, match="was not finished; repeat it"):
        dropping.drop(live, replay, ends_way_back=True, wrote=print)


def _path(location: str) -> Path:
    return Path(urlsplit(location).path)


class _NamesWhatItDeletes:
    """An admin client without a broker: its answers are the names."""

    def delete_topics(self, names: list[str], **_: float) -> list[str]:
        return names

    def delete_consumer_groups(self, names: list[str]) -> list[str]:
        return names


def test_a_replay_that_was_live_leaves_the_rollouts_by_which_it_is_audited(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[str] = []
    wrote: list[str] = []
    monkeypatch.setattr(dropping, "writers", lambda _: ("live", ""))
    monkeypatch.setattr(dropping, "_delete", lambda what, answers, _: deleted.extend(answers))
    monkeypatch.setattr(dropping.broker, "admin", lambda *_: _NamesWhatItDeletes())
    for query in ("live", ""):
        replay = replay_of(live, rollout=ROLLOUT, live_query=query).saved()
        deleted.clear()
        dropping.drop(live, replay, ends_way_back=False, wrote=wrote.append)
        assert ("model-rollouts-replay-better" in deleted) == (not query)
        assert "fraud-alerts-replay-better" in deleted
        assert bool([line for line in wrote if "model-rollouts-replay-better" in line]) == bool(query)
        wrote.clear()


@pytest.mark.parametrize("content", [b'{"id": "fir', b"\xff\xff", b"[]"])
def test_nothing_is_deleted_while_it_is_unknown_whose_the_successor_s_checkpoint_is(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    replay = replay_of(live, live_query="live", is_switched=True).saved()
    checkpoint = Path(replay.successor(live).checkpoint)
    checkpoint.mkdir()
    (checkpoint / "metadata").write_bytes(content)
    monkeypatch.setattr(dropping, "writers", lambda _: ("first", ""))
    with pytest.raises(CheckpointError, match="metadata is damaged"):
        dropping.drop(live, replay, ends_way_back=True, wrote=print)


@pytest.mark.parametrize("at", [Path, Path.as_uri], ids=["path", "uri"])
@pytest.mark.parametrize("is_way_back", [False, True])
@pytest.mark.parametrize("newest", ["first", "second"])
def test_of_two_replays_switched_in_turn_the_first_leaves_only_what_is_used(
    live: JobSettings,
    monkeypatch: pytest.MonkeyPatch,
    newest: str,
    is_way_back: bool,
    at: Callable[[Path], object],
) -> None:
    deleted: list[str] = []
    wrote: list[str] = []
    place = str(at(live.work_dir / "checkpoint"))
    live = live.model_copy(update={"checkpoint": place, "merchant_facts": True})
    replay = replay_of(live, rollout=ROLLOUT, live_query="live", is_switched=True).saved()
    monkeypatch.setattr(Checkpoints, "_at", lambda _, location: _LocalCheckpoint(_path(location)))
    checkpoint = _path(replay.successor(live).checkpoint)
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id": "first"}')
    if is_way_back:
        file = record.file_of(live.work_dir, "second")
        replace(
            replay, name="second", checkpoint=replay.successor(live).checkpoint, live_query="first", file=file
        ).saved()
    monkeypatch.setattr(dropping, "writers", lambda _: (newest, ""))
    monkeypatch.setattr(dropping, "_delete", lambda what, answers, _: deleted.extend(answers))
    monkeypatch.setattr(dropping.broker, "admin", lambda *_: _NamesWhatItDeletes())
    with pytest.raises(ReplayError, match="--end-way-back"):
        dropping.drop(live, replay, ends_way_back=False, wrote=wrote.append)
    dropping.drop(live, replay, ends_way_back=True, wrote=wrote.append)
    assert "model-rollouts-replay-better" not in deleted
    assert ("merchant-facts-replay-better" in deleted) == (newest == "second")
    assert checkpoint.exists() == (newest == "first" or is_way_back)
    assert any("way back of second" in line for line in wrote) == (newest == "second" and is_way_back)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"first": {0: 3, 1: 0}}, "--partial"),
        ({"has_moved": True}, "cards have moved"),
        ({"taken": ["checkpoint-a-b"]}, "checkpoint-a-b is of another replay; choose another name"),
        ({"foreign": {"fraud-alerts-replay-better": 7}}, "choose another name"),
        ({"free_disk": 1 << 29}, "free some"),
        ({"free_memory": 1 << 29}, "another machine"),
        ({"ends": {0: 0, 1: 0}}, "no transactions"),
        ({"has_start": False}, "has no saved state"),
        ({"gaps": ["offsets 5 to 9 of transactions-0 are in neither archive nor topic"]}, "offsets 5 to 9"),
        ({"archived": {}}, "has nothing of transactions"),
        ({"has_release": False}, "there is no program /opt/next/bin/fraud"),
    ],
)
def test_a_plan_refuses_what_could_not_succeed_and_says_what_to_do(
    live: JobSettings, changes: dict[str, object], refusal: str
) -> None:
    replay = replay_of(live, release="/opt/next/bin/fraud", archive="/data/archive")
    facts = replace(FACTS, archived={0: 500, 1: 0})
    assert not made(live, replay, facts, partial=False).refusals
    (text,) = made(live, replay, replace(facts, **changes), partial=False).refusals  # type: ignore[arg-type]
    assert refusal in text


def test_a_plan_looks_at_the_disk_of_a_work_directory_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert plan.existing(tmp_path / "not" / "yet") == tmp_path
    assert plan.existing(tmp_path) == tmp_path
    assert plan.existing(Path("not/yet")) == Path.cwd()


def test_without_replays_the_status_says_so(live: JobSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "settings", lambda _: live)
    done = CliRunner().invoke(commands.app, ["status"])
    assert done.output == f"no replays in {live.work_dir}\n"
    assert CliRunner().invoke(commands.app, ["status", "--json"]).output == ""


def test_from_a_kept_checkpoint_a_log_without_beginning_is_no_reason(live: JobSettings) -> None:
    cut = replace(FACTS, first={0: 3, 1: 0})
    kept = replay_of(live, start_from="/kept/checkpoint")
    assert not made(live, kept, cut, partial=False).refusals
    assert kept.settings(live).predecessor_checkpoint == "/kept/checkpoint"
    with_facts = live.model_copy(update={"merchant_facts": True})
    assert "omit --from" in made(with_facts, kept, cut, partial=False).refusals[0]


def test_a_replay_has_the_history_of_cards_that_have_moved_only_from_a_checkpoint(live: JobSettings) -> None:
    moved = replace(FACTS, has_moved=True)
    accepted = made(live, replay_of(live), moved, partial=True)
    assert (accepted.refusals, accepted.is_partial) == ((), True)
    text = "\n".join(accepted.lines)
    assert "before they moved" in text
    assert "nothing differs" not in text
    kept = made(live, replay_of(live, start_from="/kept/checkpoint"), moved, partial=False)
    assert (kept.refusals, kept.is_partial) == ((), False)
    assert "nothing differs" in "\n".join(kept.lines)


def test_a_plan_says_what_may_differ(live: JobSettings) -> None:
    cut = replace(FACTS, first={0: 3, 1: 0}, compacted_before=DAY_MS)
    plan = made(live, replay_of(live, rollout=ROLLOUT), cut, partial=True)
    assert (plan.refusals, plan.is_partial) == ((), True)
    text = "\n".join(plan.lines)
    for part in (
        "997 transactions",
        "card-fraud/2 with threshold 0.5",
        "without a window",
        "arrived before 1970-01-02",
        "unknown",
        "about 1 s",
    ):
        assert part in text, text
    assert "nothing differs" in "\n".join(made(live, replay_of(live), FACTS, partial=False).lines)


def test_a_switch_to_a_state_without_the_beginning_of_the_log_is_accepted_anew(live: JobSettings) -> None:
    cut = made(live, replay_of(live), replace(FACTS, first={0: 3, 1: 0}), partial=True)
    with pytest.raises(ReplayError, match="accept that with --partial"):
        switching.begin_switch(
            live, replay_of(live, is_partial=cut.is_partial), NO_DEMANDS, takes_partial=False
        )


@pytest.mark.parametrize("in_log", [False, True])
def test_a_switch_to_another_model_is_refused_if_log_or_setting_demands_two_people(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch, in_log: bool
) -> None:
    line = Line(demands=replace(FIRST_DEMANDS, four_eyes=in_log))
    monkeypatch.setattr(switching, "live_line", lambda _: line)
    with pytest.raises(ReplayError, match="needs two people here"):
        switching.begin_switch(
            live, replay_of(live, rollout=ROLLOUT), Demands(four_eyes=not in_log), takes_partial=False
        )


class _Logs:
    """The logs of rollouts of live job and replay, without brokers; the replay's begins with its rollout."""

    def __init__(self, live: JobSettings, replay: Replay, share_bp: int, patch: pytest.MonkeyPatch) -> None:
        self.name = replay.successor(live).topics.model_rollouts
        installed = installation(MODEL, Policy(0.5, 6), "replay-better", "fraud replay", 5)
        demanded = replace(FIRST_DEMANDS, operator_max_share_bp=share_bp)
        self.lines = {
            live.topics.model_rollouts: Line(demands=demanded),
            self.name: apply_events(Line(), installed),
        }
        self.kills_after = 2
        """Number of written events after which the command is killed."""
        for module in (switching, rollout):
            patch.setattr(module, "live_line", lambda settings: self.lines[settings.topics.model_rollouts])
        patch.setattr(rollout, "publish", self._publish)
        patch.setattr(switching, "writers", lambda _: ("live", ""))

    @property
    def replays(self) -> Line:
        return self.lines[self.name]

    def _publish(self, events: tuple[Event, ...], servers: str, topic: str, kafka: object) -> None:
        self.lines[topic] = apply_events(self.lines[topic], events[: self.kills_after])
        if self.kills_after < len(events):
            raise KeyboardInterrupt


@pytest.mark.parametrize("killed_after", [0, 1, 2])
def test_what_the_live_log_demands_of_operators_holds_after_a_switch(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    replay = replay_of(live, rollout=ROLLOUT, live_query="live", is_switched=True)
    logs = _Logs(live, replay, 300, monkeypatch)
    before = logs.replays
    logs.kills_after = killed_after
    with pytest.raises(KeyboardInterrupt) if killed_after < 2 else nullcontext():
        switching.begin_switch(live, replay, NO_DEMANDS, takes_partial=False)
    logs.kills_after = 2
    for _ in range(2):
        switching.begin_switch(live, replay, NO_DEMANDS, takes_partial=False)
        assert logs.replays.demands == Demands(four_eyes=False, operator_max_share_bp=300)
        assert (logs.replays.champions, logs.replays.open) == (before.champions, None)
        assert len(logs.replays.trials) == 2


def test_a_replay_whose_log_demands_as_much_is_switched_to_without_an_event(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = replay_of(live, rollout=ROLLOUT, live_query="live", is_switched=True)
    logs = _Logs(live, replay, 5_000, monkeypatch)
    before = logs.replays
    switching.begin_switch(live, replay, NO_DEMANDS, takes_partial=False)
    assert logs.replays is before


def test_a_switch_does_not_weaken_what_operators_may_because_a_rollout_is_open(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = replay_of(live, rollout=ROLLOUT, live_query="live", is_switched=True)
    logs = _Logs(live, replay, 300, monkeypatch)
    proposed, _ = installation(MODEL, Policy(0.5, 6), "trial", "someone", 5)
    logs.lines[logs.name] = apply_events(logs.replays, (proposed,))
    with pytest.raises(ReplayError, match="rollout trial is open on model-rollouts-replay-better"):
        switching.begin_switch(live, replay, NO_DEMANDS, takes_partial=False)


def test_a_replay_whose_facts_a_successor_has_continued_neither_goes_on_nor_is_switched_to_again(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = ["live", ""]
    monkeypatch.setattr(switching, "writers", lambda _: tuple(output))
    replay = replay_of(live, label_delay_ms=5, live_query="live", is_switched=True).saved()
    checkpoint = Path(replay.successor(live).checkpoint)
    checkpoint.mkdir(parents=True)
    output[1] = "successor"
    with pytest.raises(ReplayError, match="was not finished; repeat it"):
        switching.call_off(live, replay)
    output[1] = ""
    assert not switching.call_off(live, replay).is_switched
    assert not checkpoint.exists()
    output[0] = "successor"
    with pytest.raises(ReplayError, match="begin another replay"):
        switching.call_off(live, replay)
    assert switching.begin_back(live, replay).predecessor == "successor"
    output[0] = "live"
    spent, _ = record.load(live, "better")
    switching.begin_back(live, spent)  # repeated, it still knows
    spent, _ = record.load(live, "better")
    with pytest.raises(ReplayError, match="begin another replay"):
        switching.call_off(live, spent)
    with pytest.raises(ReplayError, match="begin another replay"):
        switching.begin_switch(live, spent, NO_DEMANDS, takes_partial=False)


@pytest.mark.parametrize("writer", ["successor", "resized"])
def test_a_job_that_has_taken_over_since_is_not_replaced_by_the_former_live_job(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    monkeypatch.setattr(switching, "writers", lambda _: (writer, ""))
    monkeypatch.setattr(switching, "newest_records", lambda _: {0: {"partitions": []}})
    replay = replay_of(live, live_query="live", is_switched=True).saved()
    checkpoint = Path(replay.successor(live).checkpoint)
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "successor"}')
    is_away = writer == "successor"
    with nullcontext() if is_away else pytest.raises(ReplayError, match="is of query resized, which is that"):
        assert switching.begin_back(live, replay).predecessor == "successor"
    # after a way back, another switch is one from whatever is live now
    returned = replay.saved(is_switched=False)
    again = switching.begin_switch(live, returned, NO_DEMANDS, takes_partial=False)
    assert again.predecessor == ("live" if is_away else "resized")


@pytest.mark.parametrize(
    ("writer", "author", "refusal"),
    [("live", "live job", "not finished"), ("successor", "replay", "run `fraud replay back"),
     ("resized", "query resized", "of another job, query resized")],
)  # fmt: skip
def test_status_and_drop_say_whose_the_live_output_is(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch, writer: str, author: str, refusal: str
) -> None:
    for module in (status, dropping):
        monkeypatch.setattr(module, "writers", lambda _: (writer, "another" if writer == "live" else ""))
    replay = replay_of(live, live_query="live", is_switched=True).saved()
    checkpoint = Path(replay.successor(live).checkpoint)
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "successor"}')
    assert status.author_of_live_output(live, replay) == author
    with pytest.raises(ReplayError, match=refusal):
        dropping.drop(live, replay, ends_way_back=writer == "live", wrote=print)
    assert checkpoint.exists()


def test_after_a_switch_no_checkpoint_is_read_to_tell_whose_the_live_output_is(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = live.model_copy(update={"checkpoint": "s3a://bank/checkpoint"})
    output = ["live", ""]
    for module in (switching, status):
        monkeypatch.setattr(module, "writers", lambda _: tuple(output))
    monkeypatch.setattr(switching, "newest_records", lambda _: {0: {"partitions": []}})
    starts = 0

    def at(_: Checkpoints, location: str) -> _LocalCheckpoint:
        nonlocal starts
        starts += 1
        return _LocalCheckpoint(live.work_dir / location.rpartition("/")[2])

    monkeypatch.setattr(Checkpoints, "_at", at)
    for _ in range(2):
        replay = record.find(live.work_dir, "better") or replay_of(live)
        switching.begin_switch(live, replay, NO_DEMANDS, takes_partial=False)
    switched, _ = record.load(live, "better")
    metadata = live.work_dir / "checkpoint-better" / "metadata"
    assert json.loads(metadata.read_text()) == {"id": switched.successor_query}
    assert starts == 2
    output[0] = switched.successor_query
    assert status.author_of_live_output(live, switched) == "replay"
    assert switching.begin_back(live, switched).predecessor == switched.successor_query
    shutil.rmtree(metadata.parent)
    output[0] = "resized"
    assert status.author_of_live_output(live, switched) == "query resized"
    with pytest.raises(ReplayError, match="is of query resized, which is that of another job"):
        switching.begin_back(live, switched)
    assert starts == 2


def test_a_shell_can_read_the_variables_that_a_switch_prints(
    live: JobSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = live.model_copy(update={"checkpoint": str(live.work_dir / "the bank's data")})
    replay_of(live).saved()
    monkeypatch.setattr(environment, "settings", lambda kind: live if kind is JobSettings else kind)
    monkeypatch.setattr(switching, "begin_switch", lambda live, replay, *_, **__: replay.successor(live))
    monkeypatch.setattr(switching, "become", lambda *_: None)
    monkeypatch.setattr("service.settings.ServiceSettings", SimpleNamespace(demands=NO_DEMANDS))
    done = CliRunner().invoke(commands.app, ["switch", "better"], catch_exceptions=False)
    script = f'{done.output}printf %s "$FRAUD_CHECKPOINT"'
    assert subprocess.check_output(["sh", "-c", script], text=True) == f"{live.checkpoint}-better"


def test_replays_whose_names_mean_the_same_checkpoint_are_told_apart(live: JobSettings) -> None:
    first = replay_of(live, name="a-b")
    after = replay_of(live, checkpoint=replay_of(live, name="a").successor(live).checkpoint, name="b")
    assert first.checkpoints & after.checkpoints == {first.successor(live).checkpoint}
    assert first.checkpoints == {each(live).checkpoint for each in (first.settings, first.successor)}


def test_a_replay_that_writes_facts_is_stopped_before_a_switch_to_it(live: JobSettings) -> None:
    me = psutil.Process()
    replay = replay_of(live, label_delay_ms=5, process=(me.pid, me.create_time()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(switching, "is_running", lambda server: me if server.pid == me.pid else None)
        with pytest.raises(ReplayError, match="stop it with Ctrl-C"):
            switching.begin_switch(live, replay, NO_DEMANDS, takes_partial=False)


def test_the_speed_is_that_since_the_first_decision() -> None:
    speed = Speed(1_000, 0.0)
    assert speed.look(1_000, 60.0) == 0.0
    assert speed.look(900, 61.0) == 100.0
    assert speed.look(600, 62.0) == 200.0
    assert speed.decided == 400


def test_the_progress_on_the_terminal_is_that_of_the_sidecar(live: JobSettings) -> None:
    replay = replay_of(live).saved()
    shown = Shown(replay, {0: 100})
    assert shown.show(State.RUNNING) == "900 transactions to go, 0/s"
    shown.decided, shown.per_s = {0: 600, 1: 100}, 150.0
    assert shown.show(State.WAITING) == "300 transactions to go, 150/s, waits for the live job"
    assert shown.show(State.RUNNING) == "300 transactions to go, 150/s, about 2 s"
    progress = read(replay.file.parent)
    assert progress is not None
    assert (progress.remaining, progress.seconds_left) == (300, 2.0)
    assert (progress.positions, progress.ends) == ({"0": 600, "1": 100}, {"0": 600, "1": 400})


def test_it_waits_while_the_live_job_is_behind_or_slow_but_never_for_long() -> None:
    yielding = Yielding(Limits(100, 0.2))
    assert not yielding.look(100, 0.2, 0.0)
    assert yielding.look(101, 0.0, 0.5)
    assert yielding.waits
    assert not yielding.look(51, 0.0, 1.0)
    assert not yielding.look(50, 0.3, 1.2)
    assert yielding.look(50, 0.2, 1.5)
    assert not yielding.look(500, 0.3, 1.5 + TURN_S / 2)
    assert yielding.look(0, 0.3, 1.5 + TURN_S)
    assert not yielding.look(500, 0.3, 1.5 + TURN_S + STOPPED_S)
    assert yielding.look(500, 0.3, 1.6 + TURN_S + STOPPED_S)
    assert not yielding.waits
