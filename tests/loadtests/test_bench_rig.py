"""The benchmarks expose no secrets to other users of the machine."""

from pathlib import Path

import pytest

from deploy.local.stack import Endpoints
from loadtests.bench.rig import RigOptions, simulator

pytestmark = pytest.mark.unit


def test_the_databases_password_is_on_no_command_line() -> None:
    servers = Endpoints("127.0.0.1:9", "postgresql://fraud:secret@127.0.0.1/bank", "", "")
    command, variables = simulator(RigOptions(Path("data")), servers, 10.0, 5.0)
    assert "secret" not in " ".join(command)
    assert variables == {"FRAUD_POSTGRES_DSN": servers.postgres_dsn}
    # without profiles, an empty value hides a DSN in the user's environment from the simulator
    _, variables = simulator(RigOptions(Path("data"), profiles=False), servers, 10.0, 5.0)
    assert variables == {"FRAUD_POSTGRES_DSN": ""}
