"""Training, job, sidecar and Prometheus as processes of their own: started, watched, found, stopped."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import deploy
from deploy.demo.options import DemoError
from deploy.demo.state import Run
from deploy.local import processes
from deploy.local.processes import Server

JOB, SIDECAR, TRAINING, PROMETHEUS = "job", "sidecar", "training", "prometheus"
PATIENCE_S = {JOB: 90.0, SIDECAR: 10.0, TRAINING: 2.0, PROMETHEUS: 10.0}
"""How long a graceful stop may take: the job ends its epoch."""
ROOT = Path(deploy.__file__).resolve().parents[1]


def marker(data_dir: Path, name: str) -> str:
    """The argument by which this directory's process is known; Python takes -X options of any name."""
    if name == PROMETHEUS:
        return f"--storage.tsdb.path={data_dir / name / 'data'}"
    return f"card-fraud.{name}={data_dir}"


def log_file(data_dir: Path, name: str) -> Path:
    """Where a process's output goes."""
    return data_dir / "logs" / f"{name}.log"


def start(data_dir: Path, run: Run, name: str, command: list[str], env: Mapping[str, str]) -> Server:
    """Start a Python module as a process of its own, and remember it.

    Args:
        data_dir: of the demo.
        run: remembers the process.
        name: of the process.
        command: the module and its arguments.
        env: more environment variables.

    Raises:
        StackError: it cannot be started.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    python = [sys.executable, "-X", marker(data_dir, name), "-m"]
    more = {**env, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    return start_program(data_dir, run, name, [*python, *command], more)


def start_program(
    data_dir: Path, run: Run, name: str, command: list[str], env: Mapping[str, str] | None = None
) -> Server:
    """Start any program, one of whose arguments is its marker, and remember it.

    Raises:
        StackError: it cannot be started.
    """
    log = log_file(data_dir, name)
    log.parent.mkdir(parents=True, exist_ok=True)
    server = processes.spawn(
        command,
        marker=marker(data_dir, name),
        log=log,
        cwd=data_dir,
        env={**os.environ, **(env or {})},
    )
    run.children[name] = server
    run.save(data_dir)
    return server


def log_size(data_dir: Path, name: str) -> int:
    """Bytes in a process's log."""
    try:
        return log_file(data_dir, name).stat().st_size
    except FileNotFoundError:
        return 0


def has_said(data_dir: Path, name: str, words: str, since: int) -> bool:
    """Whether words stand in a process's log behind the first `since` bytes."""
    with log_file(data_dir, name).open("rb") as file:
        file.seek(since)
        return words.encode() in file.read()


def check(data_dir: Path, run: Run) -> None:
    """Notice a process that ended.

    Raises:
        DemoError: with the tail of its log.
    """
    for name, server in run.children.items():
        if processes.running(server) is None:
            raise ended(data_dir, name)


def ended(data_dir: Path, name: str) -> DemoError:
    """The error that tells of a process that ended, with the tail of its log."""
    log = log_file(data_dir, name)
    return DemoError(f"the {name} ended unexpectedly; {log} ends with:\n{processes.tail(log)}")


def stop(data_dir: Path, run: Run, name: str) -> None:
    """Ask a process to end, and see that it does."""
    server = run.children.pop(name, None)
    if server is not None:
        processes.stop(server, patience_s=PATIENCE_S[name])
        run.save(data_dir)


def stop_leftovers(data_dir: Path, run: Run) -> list[str]:
    """Stop what a killed demo left running, recorded or not; returns the names."""
    stopped = []
    for name in PATIENCE_S:
        server = run.children.pop(name, None)
        for candidate in (server, processes.find(marker(data_dir, name))):
            if candidate is not None and processes.stop(candidate, patience_s=PATIENCE_S[name]):
                stopped.append(name)
    run.save(data_dir)
    return stopped
