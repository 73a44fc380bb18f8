"""The end of an epoch, as tasks learn of it."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from feature_store.errors import FraudError
from streaming_job.log.errors import LogError
from streaming_job.runtime import epochs
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.runtime.epochs import Address, DriverWatch, Epoch, EpochError, EpochServer
from streaming_job.runtime.failures import JobFailedError, classify
from streaming_job.transaction.writer import FencedError

pytestmark = pytest.mark.unit

WaitFor = Callable[..., object]
HOST, LONG_S = "127.0.0.1", 600.0
DRIVER = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
from streaming_job.runtime.epochs import EpochServer
server = EpochServer("127.0.0.1", 0, lambda: False)
server.begin(7, 600.0)
print(server.address.port, server.address.secret.decode(), flush=True)
time.sleep(600)
"""


@contextmanager
def running(
    must_end: Callable[[], bool] = lambda: False,
    must_stop: Callable[[], bool] = lambda: False,
    tasks: int = 1,
) -> Iterator[EpochServer]:
    server = EpochServer(HOST, 0, must_end, tasks, must_stop=must_stop)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def server() -> Iterator[EpochServer]:
    """An epoch server before its first epoch."""
    with running() as result:
        yield result


def welcomed(server: EpochServer, number: int, wait_for: WaitFor) -> None:
    wait_for(lambda: len(server._tasks) == number)


def test_an_epoch_ends_for_every_task_at_its_time(server: EpochServer, wait_for: WaitFor) -> None:
    begun = time.monotonic()
    server.begin(7, 0.3)
    with Epoch(server.address, 7) as epoch, Epoch(server.address, 7) as other:
        assert epoch.number == other.number == 7
        wait_for(lambda: epoch.is_over() and other.is_over())
        assert 0.3 <= time.monotonic() - begun < 10
        assert epoch.is_over()  # it stays over


def test_a_task_may_end_the_epoch_for_all(server: EpochServer, wait_for: WaitFor) -> None:
    server.begin(7, LONG_S)
    with Epoch(server.address, 7) as epoch, Epoch(server.address, 7) as other:
        welcomed(server, 2, wait_for)
        assert not epoch.is_over()
        assert not other.is_over()
        for _ in range(2):
            epoch.ask_for_end()
        wait_for(lambda: epoch.is_over() and other.is_over())


def test_an_epoch_ends_when_all_tasks_need_no_more_time(wait_for: WaitFor) -> None:
    with running(tasks=2) as server:
        for number in (7, 8):  # the answers of an epoch do not count in the next one
            server.begin(number, LONG_S)
            with Epoch(server.address, number) as epoch, Epoch(server.address, number) as other:
                welcomed(server, 2, wait_for)
                for _ in range(2):
                    epoch.ask_for_end(of_all=True)
                wait_for(lambda: len(server._done) == 1)
                time.sleep(3 * epochs.LOOK_S)
                assert not epoch.is_over()
                other.ask_for_end(of_all=True)
                wait_for(lambda: epoch.is_over() and other.is_over())
            welcomed(server, 0, wait_for)


def test_a_verdict_cancels_the_tasks_and_the_task_waits_for_it(wait_for: WaitFor) -> None:
    cancelled: list[str | None] = []
    server = EpochServer(HOST, 0, lambda: False, cancel=lambda: cancelled.append(server.verdict))
    fault = LogError("transactions-0 has lost records.\nRestore it " + "x" * 9000)
    try:
        server.begin(7, LONG_S)
        with Epoch(server.address, 7) as epoch, ThreadPoolExecutor(1) as pool:
            epoch.ask_for_end()
            told = pool.submit(epoch.report, fault)
            wait_for(lambda: cancelled)
            assert not told.done()  # else Spark would try the task again
            server.close()
            told.result(20.0)
    finally:
        server.close()
    text = f"streaming_job.log.errors.LogError: {fault}".replace("\n", " ")
    assert cancelled == [text]


@pytest.mark.parametrize(
    ("fault", "code"), [(FencedError("another instance"), 3), (CheckpointError("the topics are behind"), 1)]
)
def test_a_verdict_keeps_its_message_and_exit_code(fault: FraudError, code: int, wait_for: WaitFor) -> None:
    with running() as server, Epoch(server.address, 7) as epoch, ThreadPoolExecutor(1) as pool:
        told = pool.submit(epoch.report, fault)
        wait_for(lambda: server.verdict)
        error = classify(JobFailedError(server.verdict))
        server.close()
        told.result(20.0)
    assert (str(error), error.exit_code) == (str(fault), code)


def test_the_next_epoch_begins_anew(server: EpochServer, wait_for: WaitFor) -> None:
    for number in (7, 8):
        server.begin(number, LONG_S)
        with Epoch(server.address, number) as epoch:
            welcomed(server, 1, wait_for)
            assert not epoch.is_over()
            epoch.ask_for_end()
            wait_for(epoch.is_over)
        welcomed(server, 0, wait_for)


def test_a_task_of_another_epoch_ends_at_once(server: EpochServer, wait_for: WaitFor) -> None:
    with Epoch(server.address, 7) as too_early:
        wait_for(too_early.is_over)
    server.begin(7, LONG_S)
    with Epoch(server.address, 7) as right, Epoch(server.address, 6) as too_late:
        wait_for(too_late.is_over)
        assert not right.is_over()
        right.ask_for_end()
        wait_for(right.is_over)
        with Epoch(server.address, 7) as after_its_end:
            wait_for(after_its_end.is_over)


def test_a_client_without_the_secret_is_rejected(server: EpochServer, wait_for: WaitFor) -> None:
    server.begin(7, LONG_S)
    with Epoch(server.address, 7) as task:
        with Epoch(replace(server.address, secret=b"0" * 32), 7) as stranger:
            stranger.ask_for_end()
            wait_for(stranger.is_over)
        welcomed(server, 1, wait_for)
        assert not task.is_over()
    assert server.address.secret.decode() not in repr(server.address)


def silent(address: Address) -> socket.socket:
    """A client that connects and sends nothing."""
    return socket.create_connection((address.host, address.port), 10.0)


def hung_up(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


def test_silent_clients_are_limited_and_disconnected(
    server: EpochServer, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "AUTHENTICATION_S", 3.0)
    server.begin(7, LONG_S)
    with ExitStack() as open_ones, Epoch(server.address, 7) as task:
        welcomed(server, 1, wait_for)
        most = 2 * epochs.MAX_UNAUTHENTICATED
        strangers = [open_ones.enter_context(silent(server.address)) for _ in range(most)]
        wait_for(lambda: hung_up(strangers[0]))
        assert not hung_up(strangers[-1])
        wait_for(lambda: all(map(hung_up, strangers)))
        assert not task.is_over()


def test_clients_that_exhaust_the_descriptors_do_not_delay_the_end_of_an_epoch(wait_for: WaitFor) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    with ExitStack() as open_ones:
        open_ones.callback(driver.stdout.close)
        open_ones.callback(driver.wait)
        open_ones.callback(driver.kill)
        port, secret = driver.stdout.readline().split()
        address = Address(HOST, int(port), secret.encode())
        strangers = [open_ones.enter_context(silent(address)) for _ in range(60)]
        with Epoch(address, 7) as task:
            wait_for(lambda: hung_up(strangers[0]), what="room for others")
            task.ask_for_end()
            wait_for(task.is_over, what="the end of the epoch")


def test_epochs_end_and_no_new_one_begins_when_the_server_cannot_end_them(wait_for: WaitFor) -> None:
    faults: list[Exception] = []

    def must_end() -> bool:
        if faults:
            raise faults[0]
        return False

    with running(must_end) as server:
        server.begin(7, LONG_S)
        with Epoch(server.address, 7) as task:
            welcomed(server, 1, wait_for)
            faults.append(RuntimeError("nobody expected this"))
            wait_for(task.is_over)
        wait_for(lambda: not server._thread.is_alive())
        with pytest.raises(EpochError, match="start the job again"):
            server.begin(8, LONG_S)


def test_the_driver_may_end_an_epoch_for_another_reason(wait_for: WaitFor) -> None:
    reasons: list[str] = []
    with running(lambda: bool(reasons)) as server:
        server.begin(7, LONG_S)
        with Epoch(server.address, 7) as task:
            welcomed(server, 1, wait_for)
            assert not task.is_over()
            reasons.append("somebody asked the job to stop")
            wait_for(task.is_over)


def test_a_closed_server_ends_the_epoch(wait_for: WaitFor) -> None:
    with running() as server:
        server.begin(7, LONG_S)
        task = Epoch(server.address, 7)
        welcomed(server, 1, wait_for)
    with task:
        wait_for(task.is_over)


def test_a_task_whose_driver_is_killed_ends(wait_for: WaitFor) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    try:
        port, secret = driver.stdout.readline().split()
        with Epoch(Address(HOST, int(port), secret.encode()), 7) as task:
            assert not task.is_over()
            driver.send_signal(signal.SIGKILL)
            wait_for(task.is_over)
            task.ask_for_end()  # no error, although the driver is gone
    finally:
        driver.kill()
        driver.wait()
        driver.stdout.close()


def test_a_stop_ends_the_epoch_and_its_tasks_know_the_reason(wait_for: WaitFor) -> None:
    stop: list[str] = []
    with running(must_stop=lambda: bool(stop)) as server:
        server.begin(7, LONG_S)
        with Epoch(server.address, 7) as task, DriverWatch(server.address) as loop:
            welcomed(server, 2, wait_for)
            assert not task.is_over()
            assert not loop.must_stop()
            stop.append("now")
            wait_for(task.is_over)
            assert task.is_last  # a task that learns of the end knows that the job stops
            wait_for(loop.must_stop)
            assert not loop.is_gone()
            assert server.ended_for_good
            with Epoch(server.address, 7) as late:
                wait_for(late.is_over)
                assert late.must_stop()


def test_a_stop_between_two_epochs_is_for_one_more(wait_for: WaitFor) -> None:
    stop: list[str] = []
    with running(must_stop=lambda: bool(stop)) as server:
        server.begin(7, 0.0)
        with Epoch(server.address, 7) as task:
            wait_for(task.is_over)
            assert not task.must_stop()
        with DriverWatch(server.address) as loop:
            stop.append("now")
            wait_for(loop.must_stop)
        assert not server.ended_for_good  # no task has learned of it
        server.begin(8, LONG_S)
        assert server.ended_for_good
        with Epoch(server.address, 8) as task:
            wait_for(task.is_over)
            assert task.must_stop()


def test_a_stop_just_after_the_end_of_an_epoch_is_for_the_next_one(wait_for: WaitFor) -> None:
    """A task that reads both orders at once must not make the last cut: one more epoch follows."""
    stop: list[str] = []
    with running(must_stop=lambda: bool(stop)) as server:
        server.begin(7, 0.0)
        with Epoch(server.address, 7) as task, DriverWatch(server.address) as loop:
            wait_for(lambda: server._ended)
            stop.append("now")
            wait_for(loop.must_stop)
            assert not server.ended_for_good
            assert task.is_over()
            assert task.must_stop()
            assert not task.is_last


def test_a_loop_learns_that_its_driver_is_gone(wait_for: WaitFor) -> None:
    with running() as server:
        loop = DriverWatch(server.address)
        welcomed(server, 1, wait_for)
        assert not loop.is_gone()
    with loop:
        wait_for(loop.is_gone)
        assert loop.must_stop()


def test_a_missing_driver_is_reported_with_a_remedy() -> None:
    with running() as server:
        address = server.address
    with pytest.raises(EpochError, match=rf"127.0.0.1:{address.port} .*set spark.driver.host in FRAUD_SPARK"):
        Epoch(address, 7)
