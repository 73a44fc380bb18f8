"""MLflow's web page over the demo's registry: runs with their curves, and model cards."""

import socket

from deploy.demo import children, environment
from deploy.demo.state import Run
from deploy.demo.waiting import wait
from deploy.local.ports import HOST, free_port

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # no jobs, because the demo only shows runs and models
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
CONNECT_S = 1.0


def start(run: Run) -> str:
    """Start the server, wait until it listens, and return its URL."""
    port = free_port()
    store = environment.tracking_uri(run.data_dir)
    command = ["mlflow", "server", "--backend-store-uri", store, "--host", HOST, "--port", str(port)]
    children.start(run, children.MLFLOW, [*command, "--workers", "1"], SETTINGS)
    wait(
        lambda: _listens(port),
        "MLflow's server does not start",
        lambda: children.log_size(run.data_dir, children.MLFLOW),
        lambda: children.check(run),
    )
    return f"http://{HOST}:{port}/"


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), CONNECT_S):
            return True
    except OSError:
        return False
