"""Passwords on the command line are refused, with the variable to use instead."""

import pytest
from typer.testing import CliRunner

from deploy.cli import app
from feature_store import secret_options
from feature_store.secret_options import SecretOptionError

pytestmark = pytest.mark.unit
SECRET = "hunter2"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["serve", "--bootstrap-servers", "none", "--kafka", f'{{"sasl.password": "{SECRET}"}}'],
            "--kafka with sasl.password: other users can read command lines; set the environment variable "
            "FRAUD_KAFKA instead",
        ),
        (
            ["rollouts", "show", "--bootstrap-servers", "none", "--kafka", f'{{"ssl.key.pem": "{SECRET}"}}'],
            "--kafka with ssl.key.pem",
        ),
        (["models", "list", "--tracking-uri", f"https://ada:{SECRET}@mlflow"], "FRAUD_MLFLOW_TRACKING_URI"),
        (
            ["simulate", "--postgres-dsn", f"postgresql://ada:{SECRET}@db/bank"],
            "--postgres-dsn with a password",
        ),
    ],
)
def test_a_password_on_the_command_line_is_refused(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, SecretOptionError)
    assert message in str(done.exception)
    assert SECRET not in str(done.exception) + done.output


def test_a_password_in_the_environment_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAUD_KAFKA", f'{{"sasl.password": "{SECRET}", "socket.timeout.ms": "no number"}}')
    done = CliRunner().invoke(app, ["rollouts", "show", "--bootstrap-servers", "127.0.0.1:9"])
    assert not isinstance(done.exception, SecretOptionError)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"security.protocol": "SSL", "ssl.ca.location": "/ca.pem"}', []),
        ('{"ssl.key.password": "x", "sasl.username": "u"}', ["ssl.key.password"]),
        ('{"ssl.keystore.password": "x"}', ["ssl.keystore.password"]),
        ('{"sasl.oauthbearer.client.secret": "x"}', ["sasl.oauthbearer.client.secret"]),
        ("{no JSON", []),
        ("7", []),
    ],
)
def test_secret_client_settings_are_known_by_their_names(text: str, names: list[str]) -> None:
    assert secret_options.in_client_settings(text) == names


@pytest.mark.parametrize(
    ("text", "has_one"),
    [
        ("sqlite:////directory/mlflow.db", False),
        ("postgresql://ada@db/bank", False),
        ("postgresql://ada:x@db/bank", True),
        ("postgresql://db/bank?user=ada&password=x", True),
        ("host=db user=ada password=x", True),
        ("host=db user=ada", False),
        ("https://[broken", False),
    ],
)
def test_addresses_with_a_password_are_known(text: str, has_one: bool) -> None:
    assert bool(secret_options.in_address(text)) is has_one
