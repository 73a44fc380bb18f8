"""The working copy of a key group's state, for the processes that serve the group on one machine in turn.

The next process continues with the same arrays, so they are in mapped files. A copy is valid only for the
state that its token names; the state store holds the same token. After a failure (a killed worker, a failed
commit) the tokens differ, and the copy is rebuilt from the store, as it is if its files are lost. A crash of
the machine invalidates the copy, too: the files are not synced, so they may mix several epochs. Therefore a
token is valid only until the machine is booted again.
"""

import fcntl
import logging
import os
import time
from pathlib import Path

import psutil

from feature_store.state.arena import FileArena, MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import Meta, PieceStore, rebuild

log = logging.getLogger(__name__)

BUSY_S, LOOK_S = 2.0, 0.02
"""How long to wait for a copy that another process holds, and interval of looks, seconds: a process that is
being killed holds it for a moment, and one whose driver is gone for little longer."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _boot() -> str:
    """Return an id of the machine's current boot."""
    if _BOOT_ID.exists():
        return _BOOT_ID.read_text().strip()
    # other systems: boot time, rounded; it changes when the clock is set, which costs a rebuild
    return f"{round(psutil.boot_time() / 60)}"


class WorkingCopy:
    """The state of one key group in this process, backed by the machine's shared files."""

    def __init__(self, directory: Path, lateness_ms: int, *, keeps_ids: bool = False) -> None:
        self._directory = directory
        self._lateness_ms, self._keeps_ids = lateness_ms, keeps_ids
        self._boot = _boot()
        self._state: GroupState | None = None
        self._lock, self._token = self._files()
        self._is_held = False
        self.rebuilds = 0
        """Number of rebuilds of the copy by this process, not counting those of a state never saved."""

    def take(self, meta: Meta, store: PieceStore) -> GroupState:
        """Return the state as of `meta.token`, and hold the copy until `release`.

        If another process of the machine keeps holding the copy, such as one whose executor Spark has given
        up, the state is rebuilt in this process's memory instead.

        Raises:
            StateDamagedError: a rebuild is needed, and the store is damaged.
        """
        self._is_held = self._lock_current()
        if not self._is_held:
            log.warning("the working copy in %s is in use: the state is rebuilt in memory", self._directory)
            self.rebuilds += 1
            state = GroupState(MemoryArena(), self._lateness_ms, keeps_ids=self._keeps_ids)
            rebuild(store, meta, state)
            return state
        try:
            state = self._open(meta, store)
        except BaseException:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            raise
        self._stamp(b"-")  # valid for no token while it changes
        return state

    def release(self, meta: Meta | None) -> None:
        """Let another process take the copy.

        Args:
            meta: metadata of the state, if it was written to the store and has not changed since; else None.
        """
        if self._is_held:
            if meta is not None:
                self._stamp(self._name(meta))
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _files(self) -> tuple[int, int]:
        self._directory.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT
        return tuple(os.open(self._directory / name, flags, 0o600) for name in ("lock", "token"))  # type: ignore[return-value]

    def _lock_current(self) -> bool:
        """Lock the files that are in the directory now; return False if they stay locked for BUSY_S."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(LOOK_S)
                continue
            # those held open here may have been deleted
            if self._is_current("lock", self._lock) and self._is_current("token", self._token):
                return True
            for descriptor in (self._lock, self._token):
                os.close(descriptor)
            self._lock, self._token = self._files()

    def _is_current(self, name: str, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._directory / name), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _name(self, meta: Meta) -> bytes:
        return f"{meta.token} {self._boot}".encode()

    def _stamp(self, name: bytes) -> None:
        os.ftruncate(self._token, 0)
        os.pwrite(self._token, name, 0)

    def _open(self, meta: Meta, store: PieceStore) -> GroupState:
        name = self._name(meta)
        valid = bool(meta.token) and os.pread(self._token, len(name) + 1, 0) == name
        state = self._state
        if state is None or not (isinstance(state.arena, FileArena) and state.arena.is_current()):
            arena = FileArena(self._directory / "arrays")
            state = self._state = GroupState(arena, self._lateness_ms, keeps_ids=self._keeps_ids)
            valid = valid and not arena.is_new  # the arrays were deleted, but not the token
        if not valid:
            if meta.token:
                self.rebuilds += 1
            rebuild(store, meta, state)
        return state
