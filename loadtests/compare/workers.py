"""The processes of an engine written in Python; imports only the standard library, for Quix's environment."""

import multiprocessing
import signal
import sys
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

Run = Callable[[dict[str, Any], int], None]
"""A process: the program's argument, and the number of the process."""


def run_all(run: Run, config: dict[str, Any]) -> None:
    """Run `config["processes"]` processes until SIGTERM or until one ends, then stop all.

    Raises:
        SystemExit: always; status 1 if a process has failed.
    """
    workers = [
        multiprocessing.Process(target=run, args=(config, number)) for number in range(config["processes"])
    ]
    for worker in workers:
        worker.start()

    def end(*_: object) -> None:
        for worker in workers:
            worker.terminate()

    signal.signal(signal.SIGTERM, end)
    connection.wait([worker.sentinel for worker in workers])
    end()
    for worker in workers:
        worker.join()
    sys.exit(any(worker.exitcode for worker in workers))
