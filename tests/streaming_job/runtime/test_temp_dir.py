"""Temporary files of a killed job are removed by the next start, those of a running one are not."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streaming_job.environment import SettingsError
from streaming_job.runtime import temp_dir

pytestmark = pytest.mark.unit

RUN = """
import sys, time
from pathlib import Path
from streaming_job.runtime import temp_dir
mine = temp_dir.prepare(Path(sys.argv[1]))
(mine / "block").write_bytes(b"block")
print(mine, flush=True)
time.sleep(600)
"""


def started(work_dir: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", RUN, str(work_dir)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_only_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    killed, of_killed = started(tmp_path)
    running, of_running = started(tmp_path)
    try:
        of_somebody_else = tmp_path / "tmp" / "notes"
        of_somebody_else.mkdir()
        assert (of_killed / "block").exists()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        mine = temp_dir.prepare(tmp_path)
        assert not of_killed.exists()
        assert (of_running / "block").read_bytes() == b"block"
        assert of_somebody_else.exists()
        assert sorted(path.name for path in mine.iterdir()) == [temp_dir.LOCK]
    finally:
        for process in (killed, running):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_simultaneous_starts_do_not_disturb_each_other(tmp_path: Path) -> None:
    # a lock belongs to an open file, so threads exclude each other as processes do
    with ThreadPoolExecutor(16) as starts:
        prepared = list(starts.map(lambda _: temp_dir.prepare(tmp_path), range(100)))
    assert [path for path in prepared if not (path / temp_dir.LOCK).exists()] == []


@pytest.mark.parametrize("hindrance", ["", "tmp"])
def test_a_work_dir_that_cannot_be_written_is_a_wrong_setting(tmp_path: Path, hindrance: str) -> None:
    work_dir = tmp_path / "work"
    if hindrance:
        work_dir.mkdir()
    (work_dir / hindrance).write_text("a file where a directory has to be")
    with pytest.raises(SettingsError, match=r"FRAUD_WORK_DIR: .*work cannot be used .*; give a local"):
        temp_dir.prepare(work_dir)
