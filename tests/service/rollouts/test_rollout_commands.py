"""`fraud rollouts` against a real broker and registry."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from harness.progress_records import progress
from trial_progress import COUNTS
from typer.testing import CliRunner

from deploy.local.stack import Endpoints
from feature_store import catalogue
from feature_store.errors import FraudError
from models import registry
from models.algorithms import QUICK
from models.errors import ModelError
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import Type
from service.rollouts import reading
from service.rollouts.commands import app
from service.rollouts.errors import DeskError
from service.rollouts.options import SimplePolicy, drafts_of
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('promote')}/mlflow.db"


def registered(uri: str, features: tuple[str, ...] = catalogue.IDENTITIES, seed: int = 0) -> ModelRef:
    names = catalogue.NAMES
    x = np.random.default_rng(seed).normal(size=(500, len(names)))
    model = replace(QUICK, iterations=5).fit(x, x[:, 0] > 1)
    return registry.register(model, features, x[:20], np.zeros(len(names)), uri)


class Shell:
    """Runs commands with the environment variables of an installation."""

    def __init__(self, servers: str, topics: Topics, uri: str) -> None:
        self.settings = ServiceSettings(bootstrap_servers=servers, topics=topics, mlflow_tracking_uri=uri)
        named = {f"FRAUD_TOPICS__{name.upper()}": topic for name, topic in topics.model_dump().items()}
        self._environment = {
            **os.environ,
            "FRAUD_BOOTSTRAP_SERVERS": servers,
            "FRAUD_MLFLOW_TRACKING_URI": uri,
            **named,
        }

    def run(self, *arguments: str) -> str:
        return self._invoke(*arguments, catch_exceptions=False).output

    def refused(self, *arguments: str) -> DeskError:
        fault = self._invoke(*arguments).exception
        assert isinstance(fault, FraudError), fault
        assert isinstance(fault, DeskError), fault
        return fault

    def _invoke(self, *arguments: str, **more: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._environment.items():
                patch.setenv(name, value)
            return CliRunner().invoke(app, list(arguments), **more)

    def tell_progress(self, rollout_id: str, name: str) -> None:
        """Write progress of a running job in which every guard has data on a challenger."""
        record = progress(written_at=9_999_999_999_999, features=list(catalogue.IDENTITIES))
        record["totals"]["trials"] = {rollout_id: {"seq": 2, "challengers": {name: COUNTS}}}
        producer = Producer({"bootstrap.servers": self.settings.bootstrap_servers})
        producer.produce(self.settings.topics.job_progress, json.dumps(record).encode(), key=record["job_id"])
        assert producer.flush(30) == 0


@pytest.fixture
def shell(stack: Endpoints, topic_names: Callable[[], Topics], uri: str) -> Shell:
    topics = topic_names()
    config = topics.configs()
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    wanted = (topics.model_rollouts, topics.audit_log, topics.audit_refusals, topics.job_progress)
    for created in admin.create_topics(
        [NewTopic(name, 1, 1, config=config[name]) for name in wanted]
    ).values():
        created.result(30)
    return Shell(stack.bootstrap_servers, topics, uri)


def test_one_model_is_promoted_at_once_and_the_next_step_by_step(
    shell: Shell, uri: str, tmp_path: Path
) -> None:
    first, second = registered(uri), registered(uri, seed=1)
    model = f"{first.name}/{first.version}"
    output = shell.run(
        "propose", model, "--promote", "--threshold", "0.25", "--max-count-5m", "9", "--rollout-id", "r1"
    )
    assert output == "r1: proposed, promoted, now promoted, seq 2\n"
    file = tmp_path / "policy.yaml"
    file.write_text("policy:\n  threshold: 0.5\n  max_count_5m: 7\n")
    shell.run("propose", f"{second.name}/{second.version}", "--policy", str(file), "--rollout-id", "r2")
    shell.run("step", "r2", "shadow", "--at", "1")
    assert shell.refused("step", "r2", "canary").check == "guards_data"
    shell.tell_progress("r2", f"v{second.version}")
    assert shell.run("step", "r2", "canary", "--share", "25").endswith("now canary, seq 3\n")
    assert "insufficient" in shell.run("show", "r2", "--verdict")
    assert shell.refused("step", "r2", "pause", "--at", "2").check == "seq"
    shell.run("step", "r2", "pause")
    shell.run("step", "r2", "resume")
    shell.run("step", "r2", "promote")
    assert shell.run("show").splitlines()[0].startswith("r2  promoted  seq 6")
    assert "canary_set v" in shell.run("show", "r2")
    line = reading.history(shell.settings, {}).line
    assert [(champion.model, champion.policy) for champion in line.champions] == [
        (first, Policy(0.25, 9)),
        (second, Policy(0.5, 7)),
    ]
    shell.run("step", "r2", "withdraw", "--reason", "too many alerts")
    history = reading.history(shell.settings, {})
    assert history.line.champions[-1].model == first
    assert history.of("r2")[-1].event.type is Type.WITHDRAWN
    assert not [entry for entry in history.entries if entry.refused]
    assert shell.refused("step", "r1", "withdraw", "--reason", "none left").check == "last_rollout"


def policy_file(path: Path, threshold: float, guards: str = "") -> str:
    path.write_text(f"policy:\n  threshold: {threshold}\n  max_count_5m: 7\n{guards}")
    return str(path)


def test_a_rollout_has_the_guards_of_its_policy_file_even_if_promoted_at_once(
    shell: Shell, uri: str, tmp_path: Path
) -> None:
    ref = registered(uri)
    file = policy_file(tmp_path / "policy.yaml", 0.5, "guards:\n  alpha: 0.05\n")
    shell.run("propose", f"{ref.name}/{ref.version}", "--promote", "--policy", file, "--rollout-id", "r1")
    guards = reading.history(shell.settings, {}).of("r1")[0].event.guards
    assert guards is not None
    assert guards["alpha"] == 0.05


def test_several_models_are_challengers_of_one_rollout(shell: Shell, uri: str, tmp_path: Path) -> None:
    first, second, third = (registered(uri, seed=seed) for seed in range(3))
    shell.run(
        "propose", f"{first.name}/{first.version}", "--promote", "--threshold", "0.25", "--rollout-id", "r1"
    )
    models = [f"{ref.name}/{ref.version}" for ref in (second, third, second)]
    files = [policy_file(tmp_path / f"{number}.yaml", 0.5 + number / 10) for number in range(3)]
    policies = [word for file in files for word in ("--policy", file)]
    shell.run("propose", *models, *policies, "--rollout-id", "r2", "--share", "5")
    challengers = reading.history(shell.settings, {}).line.trials["r2"].challengers
    assert [
        (challenger.name, challenger.role, challenger.model, challenger.policy.threshold)
        for challenger in challengers
    ] == [
        (f"v{second.version}", "canary", second, 0.5),
        (f"v{third.version}", "shadow", third, 0.6),
        (f"v{second.version}-2", "shadow", second, 0.7),
    ]
    assert challengers[0].share_bp == 500


@pytest.mark.parametrize(
    ("guards", "files", "match"),
    [
        (("", "guards:\n  alpha: 0.05\n"), 2, None),
        (("guards:\n  alpha: 0.01\n", "guards:\n  alpha: 0.05\n"), 2, "has other guards than"),
        (("", ""), 3, "2 policy files for 3 models"),
    ],
)
def test_models_of_one_rollout_share_one_set_of_guards(
    guards: tuple[str, str], files: int, match: str | None, tmp_path: Path
) -> None:
    paths = [Path(policy_file(tmp_path / f"{n}.yaml", 0.5, text)) for n, text in enumerate(guards)]
    models = [f"card-fraud/{number}" for number in range(1, files + 1)]
    if match is None:
        drafts, result = drafts_of(models, paths, SimplePolicy(), "canary", 1_000)
        assert result == {"alpha": 0.05}
        assert [draft.name for draft in drafts] == ["v1", "v2"]
        return
    with pytest.raises(ModelError, match=match):
        drafts_of(models, paths, SimplePolicy(), "canary", 1_000)


@pytest.mark.parametrize(
    ("model", "check", "match"),
    [
        ("card-fraud/999", "registry", "has no model card-fraud/999"),
        ("nonsense/x", "model", "no NAME/VERSION"),
        ("other features", "features", "this release does not compute amount:9"),
    ],
)
def test_invalid_rollouts_are_refused(shell: Shell, uri: str, model: str, check: str, match: str) -> None:
    if model == "other features":
        model = f"card-fraud/{registered(uri, ('amount:9', *catalogue.IDENTITIES[1:])).version}"
    fault = shell.refused("propose", model, "--promote", "--threshold", "0.5")
    assert (fault.check, match in str(fault)) == (check, True), str(fault)
    assert reading.history(shell.settings, {}).entries == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("propose m/1 --threshold 0.5 --promote --share 5", "--share is for a trial"),
        ("propose m/1 --threshold 0.5 --promote --role shadow", "--role is for a trial"),
        ("step r1 promote --share 5", "--share is not for promote, but for canary"),
        ("step r1 pause --challenger v1", "--challenger is not for pause, but for canary, promote"),
        ("step r1 rollback --at 3", "--at is not for rollback"),
        (
            "step r1 rollback --from-the-beginning",
            "--from-the-beginning is not for rollback, but for withdraw",
        ),
        ("step r1 withdraw", "a withdrawal needs a --reason"),
    ],
)
def test_options_that_a_command_would_ignore_are_refused(
    arguments: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAUD_MLFLOW_TRACKING_URI", "none")
    outcome = CliRunner().invoke(app, [*arguments.split(), "--bootstrap-servers", "127.0.0.1:9"])
    assert outcome.exit_code == 2
    assert message in " ".join(outcome.output.replace("│", "").split())


def test_files_that_were_changed_in_the_registry_are_refused(shell: Shell, uri: str) -> None:
    ref = registered(uri)
    artifacts = Path(uri.removeprefix("sqlite:///")).parent / "artifacts"
    newest = max(artifacts.rglob("scorer.json"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_text(newest.read_text() + " ")
    fault = shell.refused("propose", f"{ref.name}/{ref.version}", "--promote", "--threshold", "0.5")
    assert (fault.check, "its files were changed" in str(fault)) == ("files", True), str(fault)


def test_the_alias_follows_the_log(shell: Shell, uri: str) -> None:
    from service.rollouts.alias_mirror import ALIAS, AliasMirror
    from service.rollouts.model_registry import ModelRegistry

    ref = registered(uri)
    shell.run("propose", f"{ref.name}/{ref.version}", "--promote", "--threshold", "0.5")
    history = reading.history(shell.settings, {})
    mirror = AliasMirror(lambda: history, ModelRegistry(uri).point)
    assert mirror.look()
    from models import tracking

    with tracking.registry(uri) as client:
        assert str(client.get_model_version_by_alias(ref.name, ALIAS).version) == ref.version
