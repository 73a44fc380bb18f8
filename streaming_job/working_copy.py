"""The working copy of a key group's state, shared by the Python workers of one machine.

Any worker may get any key group, so the arrays live in mapped files. A copy is good only for the state that
its token names; the state store holds the same token. Whatever goes wrong in between (a killed worker, a
failed commit, a lost file) leaves tokens that differ, and the copy is rebuilt from the store.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feature_store.arena import FileArena
from feature_store.group_state import GroupState
from feature_store.journal import Meta, PieceStore, rebuild


class WorkingCopy:
    """State of one key group in this process, backed by the machine's shared files."""

    def __init__(self, directory: Path, lateness_ms: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._lateness_ms = lateness_ms
        self._state: GroupState | None = None
        self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._token = os.open(directory / "token", os.O_RDWR | os.O_CREAT, 0o600)
        self.rebuilds = 0
        """How often this process had to rebuild the copy."""

    @contextmanager
    def use(self, meta: Meta, store: PieceStore) -> Iterator[GroupState]:
        """The state that `meta` names, for one batch; stamped with `meta.token` as it is at the end.

        A worker that outlived its job may still hold the copy; it is waited for.

        Raises:
            StateDamagedError: a rebuild was needed and the store is damaged.
        """
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            state = self._open(meta, store)
            os.pwrite(self._token, b"-" * len(meta.token or "-"), 0)  # no longer the state of any token
            yield state
            os.ftruncate(self._token, 0)
            os.pwrite(self._token, meta.token.encode(), 0)
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _open(self, meta: Meta, store: PieceStore) -> GroupState:
        good = bool(meta.token) and os.pread(self._token, 64, 0) == meta.token.encode()
        state = self._state
        if state is None or not (isinstance(state.arena, FileArena) and state.arena.is_current()):
            arena = FileArena(self._directory / "arrays")
            state = self._state = GroupState(arena, self._lateness_ms)
            good = good and not arena.is_new  # somebody removed files from under the token
        if not good:
            if meta.token:
                self.rebuilds += 1
            rebuild(store, meta, state)
        return state
