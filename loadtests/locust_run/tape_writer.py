"""Writer of a lane's tape: a separate process, which ends soon after its parent."""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from loadtests.locust_run import tape
from loadtests.locust_run.plan import LoadTestPlan, Share
from loadtests.locust_run.transactions import SCHEMA, encoded

PAUSE_S = 0.2


def write(directory: Path, pieces: Iterable[pa.Table], *, ahead_bytes: int = tape.AHEAD_BYTES) -> None:
    """Write the tables, gathered into segments; pause while the reader has `ahead_bytes` left.

    Segments appear atomically. Returns early if the parent has ended when a pause is due.
    """
    parent = os.getppid()
    events = 0
    for number, table in enumerate(_gathered(pieces)):
        while tape.size(directory) >= ahead_bytes:
            if os.getppid() != parent:
                return
            time.sleep(PAUSE_S)
        path = directory / tape.name(number)
        partial = path.with_suffix(".partial")
        with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
            writer.write_table(table)
        partial.rename(path)
        events += len(table)
    end = directory / f"{tape.END}.partial"
    end.write_text(str(events))
    end.rename(directory / tape.END)


def _gathered(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    pending: list[pa.Table] = []
    for piece in pieces:
        pending.append(piece)
        if sum(map(len, pending)) >= tape.SEGMENT_ROWS:
            yield pa.concat_tables(pending).combine_chunks()
            pending = []
    if pending:
        yield pa.concat_tables(pending).combine_chunks()


def main() -> None:
    """Run the writer; arguments: the directory, and the task as JSON."""
    directory, task = Path(sys.argv[1]), json.loads(sys.argv[2])
    os.nice(10)  # the system under test has priority
    plan, share = LoadTestPlan.from_json(task["plan"]), Share(**task["share"])
    write(directory, encoded(plan, share, task["base_ms"]))


if __name__ == "__main__":
    main()
