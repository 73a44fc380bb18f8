"""A key group as its process serves it: the loop in a thread of its own, and the task that saves its state.

The loop runs from the opening of the group until the job stops. Spark's tasks come and go with the epochs;
they only carry what the loop has staged into the state store, so nothing waits for Spark to commit, to plan
and to start the next task. Each object has one owner:

    loop's thread   core, arrays of the state, meta, followers of the log, committer, connection to the driver
    task's thread   Spark's state store, the epoch's connection to the driver, the token of the last cut
    both            `Staging`, which has a lock

The statements of an epoch, in their order:

    task   finds the token of the last cut in the state store, so the loop's changes follow on it
    loop   turns, again and again; changes go to the staging
    task   takes them, and writes them to the state store
    task   the driver ends the epoch: asks for a cut, and goes on taking
    loop   ends its turn, commits, stages the last changes and the cut; begins the next turn
    task   takes the rest up to the cut, and returns; Spark commits
    loop   goes on; its changes wait for the next task

What may go wrong, and what follows:

    Spark does not commit the epoch, or the group was served elsewhere: the next task finds another token,
        ends the loop and opens the group from the state store
    the task fails: its loop is told to end; the process ends after the task in any case
    task, worker or process is killed: the kernel ends the process, and the loop with it
    the next task comes late, because another group is not open yet: the loop goes on, within its bytes
    the next task never comes: the loop ends after ALONE_S, and the process a minute later
    another process has opened the group: the loop's next Kafka transaction is fenced, which ends it
    the driver is gone: the loop notices it in each turn, and ends
    the job stops: the cut is the last one; the loop ends, and its working copy stays valid
"""

import logging
import sys
import threading

from feature_store.state.journal import Meta, PieceSink
from streaming_job.group.opening import OpenGroup
from streaming_job.group.staging import Cut, Staging
from streaming_job.runtime import pauses
from streaming_job.runtime.epochs import DriverWatch, Epoch, EpochError
from streaming_job.runtime.failpoints import Failpoint, reach

log = logging.getLogger(__name__)

ALONE_S = 600.0
"""Seconds for which a loop goes on without a task. Usually Spark needs a fraction of a second between two
epochs; but an epoch lasts until all groups are open, and to open one may take minutes."""
LOOK_S = 0.1
"""Interval at which a task looks whether its epoch is over, and a waiting loop whether its driver is gone."""
SWITCH_S = 0.0005
"""Time after which a thread that computes yields to the other one; Python's default would hold up an alert
for 5 ms whenever the task has work."""


class Serving:
    """The loop of an opened key group, in a thread of its own; the task's thread calls the methods."""

    def __init__(
        self, group: int, opened: OpenGroup, driver: DriverWatch, epoch: int, most_bytes: int
    ) -> None:
        """Start the loop.

        Args:
            opened: the group; the loop owns it until it has ended.
            driver: closed when the loop ends.
            epoch: number of the running epoch. Progress records have the number of the newest epoch whose
                task has come: by then Spark has committed the one before.
            most_bytes: bytes of staged changes after which an epoch should end.
        """
        self.group, self.token = group, opened.meta.token
        """Token of the state up to the last cut; empty while a task saves, so that after a failure no other
        task goes on where it stopped."""
        self._opened, self._driver, self._epoch = opened, driver, epoch
        self._staging = Staging(most_bytes, ALONE_S)
        self._is_given_up = False
        sys.setswitchinterval(SWITCH_S)
        self._thread = threading.Thread(target=self._run, name=f"key group {group}", daemon=True)
        self._thread.start()

    def save(self, epoch: Epoch, store: PieceSink) -> Cut:
        """Write the changes of an epoch into the state store until the epoch is over; return its cut.

        Raises:
            BaseException: the fault of the loop.
        """
        staging, wants_cut = self._staging, False
        self.token, self._epoch = "", epoch.number
        while True:
            changes, cut = staging.take(LOOK_S)
            for change in changes:
                change.apply(store)
            if cut is not None:
                self.token = cut.token
                return cut
            if wants_cut:
                continue
            if epoch.is_over():
                staging.want_cut(last=epoch.is_last)
                wants_cut = True
            elif staging.wants_end:
                epoch.ask_for_end()
            elif staging.is_done:
                epoch.ask_for_end(of_all=True)

    def join(self) -> Meta:
        """Wait for the end of a loop after its last cut, and close the group; return the state's metadata."""
        self._thread.join()
        self._opened.close()
        return self._opened.meta

    def give_up(self) -> None:
        """Have the loop end after its turn, without a cut."""
        self._is_given_up = True

    @property
    def is_alive(self) -> bool:
        """Whether the loop runs."""
        return self._thread.is_alive()

    def end(self) -> None:
        """End the loop without a cut, and close the group."""
        self.give_up()
        self.join()

    def _run(self) -> None:
        try:
            with pauses.ended_by(self._must_stop):
                self._serve()
        except BaseException as fault:  # raised again in the task
            if not self._is_given_up:
                log.warning("key group %d: its loop has ended: %s", self.group, fault)
            self._staging.fail(fault)
        finally:
            self._driver.close()

    def _must_stop(self) -> bool:
        return self._is_given_up or self._driver.must_stop()

    def _serve(self) -> None:
        follower, committer, staging = self._opened.follower, self._opened.committer, self._staging
        committer.begin()
        follower.core.watch.lap("open")
        while True:
            committer.epoch = self._epoch
            if self._is_given_up:
                raise EpochError("the task of the key group has failed")
            if self._driver.is_gone():
                raise EpochError("the job's driver is gone")
            if staging.is_abandoned:
                raise EpochError(f"Spark has sent no task for {ALONE_S:.0f} s")
            if (is_last := staging.wanted_cut) is not None:
                positions = follower.cut(staging)
                reach(Failpoint.CUT)
                staging.cut(Cut(self._opened.meta.token, positions, committer.summary, is_last))
                if is_last:
                    return
                committer.begin()
            elif staging.is_full:
                staging.wait(LOOK_S)
                follower.core.watch.lap("wait")
            else:
                follower.advance(staging)
                staging.is_done = follower.is_done
