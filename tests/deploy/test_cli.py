import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from typer.testing import CliRunner

from deploy import cli
from deploy.local import topics
from deploy.local.errors import StackError
from feature_store.errors import FraudError
from streaming_job.contracts.topics import Topics
from streaming_job.environment import SettingsError

pytestmark = pytest.mark.unit


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys; from deploy.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'confluent_kafka', 'psycopg', 'pyspark', 'mlflow', 'numba', 'numpy'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    for name in cli.COMMANDS:
        assert name in done.stdout


def test_command_is_found_in_its_module() -> None:
    done = CliRunner().invoke(cli.app, ["stack", "--help"])
    assert done.exit_code == 0
    for name in ("up", "down", "status"):
        assert name in done.output


def test_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(cli.app, ["nonsense"]).exit_code == 2


LACKING = """
import sys
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[2]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Lacking())
from deploy import cli
cli.end(lambda: cli._load(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("command", "absent", "expected"),
    [
        ("replay", "service", "is not part of this installation, which lacks service: "),
        ("verify", "loadtests", "is not part of this installation, which lacks loadtests: "),
    ],
)
def test_a_command_that_an_image_lacks_says_so_in_one_line(command: str, absent: str, expected: str) -> None:
    words = [sys.executable, "-c", LACKING, command, absent]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: `fraud {command}` {expected}")
    assert done.stderr.count("\n") == 1


def test_error_becomes_one_line_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class SpecialError(FraudError):
        exit_code = 7

    def fail() -> None:
        raise SpecialError("it broke: mend it")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 7
    assert capsys.readouterr().err == "error: it broke: mend it\n"


@pytest.mark.parametrize(
    "command",
    [
        ["job", "run"],
        ["job", "topics"],
        ["verify"],
        ["dead-letters", "list"],
        ["serve"],
        ["simulate"],
        ["rollouts", "propose", "card-fraud/1", "--threshold", "0.5"],
    ],
)
def test_client_settings_that_are_not_json_give_one_line_without_their_value(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BOOTSTRAP_SERVERS", "MLFLOW_TRACKING_URI", "CHECKPOINT", "WORK_DIR"):
        monkeypatch.setenv(f"FRAUD_{name}", "none")
    monkeypatch.setenv("FRAUD_KAFKA", "{sasl.password: secret}")
    fault = CliRunner().invoke(cli.app, command).exception
    assert isinstance(fault, SettingsError)
    assert "FRAUD_KAFKA" in str(fault)
    assert "secret" not in str(fault)
    assert "\n" not in str(fault)


def test_an_error_of_the_brokers_is_told_when_topics_are_created(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def list_topics(self, timeout: float) -> None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "broker transport failure"))

    monkeypatch.setattr(topics, "admin", lambda *_: Client())
    expected = r"topics cannot be created or compared \(broker transport failure\): check the brokers, "
    with pytest.raises(StackError, match=expected):
        topics.create("nowhere", Topics(), alter=False)


@pytest.mark.parametrize(("arrival", "replay"), [("log_append", False), ("create", True)])
def test_topics_are_created_for_the_arrivals_that_a_start_accepts(
    arrival: str, replay: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BOOTSTRAP_SERVERS", "MLFLOW_TRACKING_URI", "CHECKPOINT", "WORK_DIR"):
        monkeypatch.setenv(f"FRAUD_{name}", "none")
    monkeypatch.setenv("FRAUD_ARRIVAL", arrival)
    created: list[dict[str, Any]] = []
    monkeypatch.setattr(topics, "create", lambda *_, **options: created.append(options) or [])
    assert CliRunner().invoke(cli.app, ["job", "topics"]).exit_code == 0
    assert [options["replay"] for options in created] == [replay]


@pytest.mark.parametrize(
    "command", [["job", "topics"], ["verify"], ["verify", "--follow"], ["serve", "--port", "0"]]
)
def test_a_client_setting_that_librdkafka_refuses_gives_one_line(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("BOOTSTRAP_SERVERS", "MLFLOW_TRACKING_URI", "CHECKPOINT", "WORK_DIR"):
        monkeypatch.setenv(f"FRAUD_{name}", "none")
    monkeypatch.setenv("FRAUD_KAFKA", '{"sasl.passwort": "secret"}')
    with pytest.raises(SystemExit) as stopped:
        cli.end(lambda: cli.app(command))
    assert stopped.value.code == 1
    written = capsys.readouterr().err
    assert written == (
        'error: FRAUD_KAFKA or --kafka: No such configuration property: "sasl.passwort"; '
        "see docs/settings.md\n"
    )


def test_other_errors_of_kafka_keep_their_traceback() -> None:
    fault = KafkaException(KafkaError(KafkaError._TRANSPORT, "broker transport failure"))

    def fail() -> None:
        raise fault

    with pytest.raises(KafkaException) as raised:
        cli.end(fail)
    assert raised.value is fault


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["rollouts", "step", "march", "rollback"]])
@pytest.mark.parametrize(
    ("name", "value"), [("RATE_BURST", "0"), ("FOUR_EYES", "maybe"), ("OFFSETS_INTERVAL_S", "nan")]
)
def test_a_wrong_setting_of_the_sidecar_gives_one_line_without_its_value(
    command: list[str], name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAUD_BOOTSTRAP_SERVERS", "none")
    monkeypatch.setenv(f"FRAUD_{name}", value)
    fault = CliRunner().invoke(cli.app, command).exception
    assert isinstance(fault, SettingsError)
    assert str(fault).startswith(f"FRAUD_{name}: ")
    assert "\n" not in str(fault)


START = ("--train-start", "2026-01-01")
EVALUATE = (*START, "--transactions", "none", "--report", "none")


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "--bootstrap-servers", "none", "--port", "99999"],
        ["serve", "--bootstrap-servers", "none", "--port", "-1"],
        ["capacity", "--rate", "inf", "--cards", "1"],
        ["capacity", "--rate", "1", "--cards", "inf"],
        ["demo", "--rate", "nan"],
        ["demo", "--seed", "-1"],
        ["demo", "--cards", "0"],
        ["models", "train", "--transactions", "none", "--seed", "-1"],
        ["models", "train", "--transactions", "none", "--seed", str(2**32)],
        ["models", "train", "--transactions", "none", "--fraud-weight", "inf"],
        ["models", "train", "--transactions", "none", "--learning-rate", "inf"],
        ["models", "train", "--transactions", "none", "--alert-cost", "inf"],
        ["models", "train", "--transactions", "none", "--label-delay-days", "inf"],
        ["features", "--transactions", "none", "--output", "none", "--label-delay-days", "inf"],
        ["models", "evaluate", *EVALUATE, "--folds", "99999999"],
        ["models", "evaluate", *EVALUATE, "--train-days", "99999999"],
        ["models", "evaluate", *EVALUATE, "--delay-days", "99999999"],
        ["models", "evaluate", *EVALUATE, "--test-days", "99999999"],
        ["models", "evaluate", *EVALUATE, "--label-delay-days", "inf"],
    ],
)
def test_an_option_out_of_its_range_is_a_usage_error(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAUD_MLFLOW_TRACKING_URI", "none")
    assert CliRunner().invoke(cli.app, command).exit_code == 2


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_no_command_offers_completion_which_only_the_whole_program_could(name: str) -> None:
    assert not [parameter for parameter in cli._load(name).params if "completion" in str(parameter.name)]


@pytest.mark.parametrize(
    "command",
    [
        ["bench", "calibrate", "--report", "{none}"],
        ["bench", "calibrate", "--report", "{dir}"],
        ["bench", "calibrate", "--beside", "{none}"],
        ["bench", "latency", "--report", "{none}"],
        ["compare", "--report", "{none}"],
        ["loadtest", "--report", "{none}"],
        ["loadtest", "--replay", "{none}"],
        ["verify", "--report", "{none}"],
        ["replay", "compare", "better", "--page", "{none}"],
        ["backtest", "{dir}", "--report", "{none}"],
        ["backtest", "{dir}", "--html", "{dir}"],
        ["models", "evaluate", "--transactions", "{dir}", *START, "--report", "{none}"],
        ["models", "evaluate", "--transactions", "{dir}", *START, "--report", "{dir}/ok", "--html", "{dir}"],
    ],
)
def test_files_are_refused_before_long_work(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BOOTSTRAP_SERVERS", "MLFLOW_TRACKING_URI", "CHECKPOINT", "WORK_DIR"):
        monkeypatch.setenv(f"FRAUD_{name}", "none")
    files = {"none": str(tmp_path / "none" / "file"), "dir": str(tmp_path)}
    fault = CliRunner().invoke(cli.app, [word.format(**files) for word in command]).exception
    assert isinstance(fault, FraudError)
    assert files["dir"] in str(fault)
    assert "give" in str(fault)


@pytest.mark.parametrize("empty", ["CHECKPOINT", "WORK_DIR"])
def test_an_empty_variable_is_not_the_current_directory(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BOOTSTRAP_SERVERS", "MLFLOW_TRACKING_URI", "CHECKPOINT", "WORK_DIR"):
        monkeypatch.setenv(f"FRAUD_{name}", "" if name == empty else "none")
    fault = CliRunner().invoke(cli.app, ["job", "run"]).exception
    assert isinstance(fault, SettingsError)
    assert f"FRAUD_{empty}: value error, it is empty; name a directory" in str(fault)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", [["--help"], ["capacity", "--rate", "100", "--cards", "1000"]])
def test_standard_output_on_a_full_disk_is_one_line(command: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "deploy.cli", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.strip().startswith("error: standard output or a file cannot be written: No space left")
    assert "\n" not in done.stderr.strip()


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["simulate", "--output", "x", "--bootstrap-servers", "none"], "--bootstrap-servers"),
        (["simulate", "--output", "x", "--speed", "max"], "--speed"),
        (["simulate", "--output", "x", "--chargeback-delay", "1m"], "--chargeback-delay"),
        (["simulate", "--replay", "x", "--bootstrap-servers", "none", "--rate", "9"], "--rate"),
        (["simulate", "--bootstrap-servers", "none", "--start", "2026-01-01"], "--start"),
        (
            ["simulate", "--bootstrap-servers", "none", "--speed", "max", "--profile-changes", "9"],
            "--profile-changes",
        ),
        (["verify", "--share", "0.1"], "--share"),
        (["verify", "--state", "x"], "--state"),
        (["verify", "some-alert", "--metrics-port", "0"], "--metrics-port"),
    ],
)
def test_an_option_that_would_be_ignored_is_a_usage_error(
    command: list[str], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, command, env={"COLUMNS": "200"})
    assert done.exit_code == 2, done.output
    assert f"Invalid value: {option} is for " in done.output
    assert not list(tmp_path.iterdir())


def test_variables_of_other_commands_do_not_refuse_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAUD_BOOTSTRAP_SERVERS", "none")
    monkeypatch.setenv("FRAUD_POSTGRES_DSN", "none")
    file = tmp_path / "x.parquet"
    words = ["simulate", "--output", str(file), "--events", "5", "--cards", "20", "--merchants", "21"]
    assert CliRunner().invoke(cli.app, words).exit_code == 0
    assert file.exists()


@pytest.mark.parametrize("option", ["--for", "--warm-up"])
def test_a_benchmarks_length_is_refused_before_servers_start(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loadtests.bench import rig

    def start(*_: object) -> None:
        raise AssertionError("servers would start")

    monkeypatch.setattr(rig, "rig", start)
    fault = CliRunner().invoke(cli.app, ["bench", "latency", option, "0s"]).exception
    assert isinstance(fault, FraudError)
    assert "'0s' is not a duration" in str(fault)
