"""Child processes of a demo (training, job, sidecar, Prometheus, audit, MLflow): start, check, find, stop."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import deploy
from deploy.demo.options import DemoError
from deploy.demo.state import Run
from deploy.local import launch, processes
from deploy.local.processes import Server

JOB, SIDECAR, TRAINING, PROMETHEUS = "job", "sidecar", "training", "prometheus"
AUDIT, MLFLOW, FORMER = "audit", "mlflow", "former job"
"""The last is a job from which another one takes over, as JOB."""
PATIENCE_S = {
    JOB: 90.0,
    FORMER: 90.0,
    SIDECAR: 10.0,
    TRAINING: 2.0,
    PROMETHEUS: 10.0,
    AUDIT: 10.0,
    MLFLOW: 5.0,
}
"""Time in which each process may stop gracefully, seconds; the job needs it to end its epoch."""
ROOT = Path(deploy.__file__).resolve().parents[1]


def marker(data_dir: Path, name: str) -> str:
    """Return the argument that identifies the process `name` of this directory among all processes.

    A Python process gets it as an -X option, because Python accepts -X options of any name.
    """
    if name == PROMETHEUS:
        return f"--storage.tsdb.path={data_dir / name / 'data'}"
    return f"card-fraud.{name}={data_dir}"


def log_file(data_dir: Path, name: str) -> Path:
    """Return the path of a process's log."""
    return data_dir / "logs" / f"{name}.log"


def start(run: Run, name: str, command: list[str], env: Mapping[str, str]) -> Server:
    """Start a Python module as a child process, and record it."""
    python = [sys.executable, "-X", marker(run.data_dir, name), "-m"]
    return start_program(run, name, [*python, *command], of_python(env))


def of_python(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables, with those with which Python runs a module of this checkout."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**env, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def start_program(run: Run, name: str, command: list[str], env: Mapping[str, str] | None = None) -> Server:
    """Start any program that has its marker among its arguments, and record it."""
    log = log_file(run.data_dir, name)
    log.parent.mkdir(parents=True, exist_ok=True)
    server = processes.spawn(
        command,
        marker=marker(run.data_dir, name),
        log=log,
        cwd=run.data_dir,
        env={**os.environ, **(env or {})},
    )
    run.children[name] = server
    run.save()
    return server


def log_size(data_dir: Path, name: str) -> int:
    """Return the size of a process's log in bytes."""
    try:
        return log_file(data_dir, name).stat().st_size
    except FileNotFoundError:
        return 0


def logged(data_dir: Path, name: str, text: str, since: int) -> str | None:
    """Return a process's first log line after the first `since` bytes that has `text`, from there on."""
    with log_file(data_dir, name).open("rb") as file:
        file.seek(since)
        _, found, rest = file.read().decode(errors="replace").partition(text)
    line, end, _ = rest.partition("\n")
    return found + line if found and end else None


def check(run: Run) -> None:
    """Check that all child processes run, but a former job.

    Raises:
        DemoError: a process ended; the message has the tail of its log.
    """
    for name, server in list(run.children.items()):  # a tour changes them in its thread
        if name != FORMER and processes.running(server) is None:
            raise exit_error(run.data_dir, name)


def exit_error(data_dir: Path, name: str) -> DemoError:
    """Build the error for a process that ended, with the tail of its log."""
    log = log_file(data_dir, name)
    return DemoError(f"the {name} ended unexpectedly; {log} ends with:\n{launch.tail(log)}")


def stop(run: Run, name: str) -> None:
    """Stop a process and wait until it has ended."""
    server = run.children.pop(name, None)
    if server is not None:
        processes.stop(server, patience_s=PATIENCE_S[name])
        run.save()


def stop_leftovers(run: Run) -> list[str]:
    """Stop the processes that a killed demo left running, recorded or not; return their names."""
    stopped = []
    for name in PATIENCE_S:
        server = run.children.pop(name, None)
        for candidate in (server, processes.find(marker(run.data_dir, name))):
            if candidate is not None and processes.stop(candidate, patience_s=PATIENCE_S[name]):
                stopped.append(name)
    run.save()
    return stopped
