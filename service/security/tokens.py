"""The tokens file: hashes of the tokens of the sidecar's callers.

A token is 256 random bits, which cannot be guessed, so a plain SHA-256 is enough; only secrets that people
choose need slow, salted hashes (decision 50). The file is replaced atomically, so no reader sees it
half-written.
"""

import fcntl
import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from feature_store.errors import FraudError
from service.security.roles import Role

RESERVED = {
    "local": "the name of callers while there is no tokens file",
    "guard": "the name of the guards of rollouts in the audit log",
}
"""Names that no token may have -> why."""
PREFIX = "fraud_"
"""Prefix of all tokens, by which secret scanners recognise them."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class TokensError(FraudError):
    """The tokens file is missing, damaged or open to other writers, or a change of it is refused.

    `fraud tokens add` creates one.
    """


class Token(BaseModel):
    """An entry of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._@-]{0,63}$")]
    """Name of the token's holder."""
    role: Annotated[
        Role,
        BeforeValidator(lambda word: Role.of(word) if isinstance(word, str) else word),
        PlainSerializer(lambda role: role.word, return_type=str),
    ]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    created_at: int
    """Milliseconds since 1970-01-01 UTC, as all times here."""
    created_by: str
    """User of the operating system."""
    expires_at: int | None = None
    revoked_at: int | None = None
    revoked_by: str | None = None

    def state(self, now_ms: int) -> Literal["active", "expired", "revoked"]:
        """Return the state of the token now."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and now_ms >= self.expires_at else "active"


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    tokens: tuple[Token, ...] = ()


def digest(secret: str) -> str:
    """Return the hash by which the file lists a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def read(path: Path) -> tuple[Token, ...]:
    """Read the tokens of the file.

    Raises:
        TokensError: the file is missing, unreadable or damaged, or others than its owner may write it.
    """
    try:
        if path.stat().st_mode & OTHERS_WRITE:
            raise TokensError(f"{path} may be written by others than its owner; chmod 600 it")
        return _File.model_validate_json(path.read_bytes()).tokens
    except OSError as fault:
        raise TokensError(
            f"the tokens file {path} cannot be read: {fault.strerror}; `fraud tokens add` makes a missing one"
        ) from fault
    except ValidationError as fault:
        first = fault.errors()[0]
        location = ".".join(str(part) for part in first["loc"])
        raise TokensError(
            f"{path} is no tokens file: {location or 'JSON'}: {first['msg']}; restore it"
        ) from None


def add(path: Path, name: str, role: Role, by: str, now_ms: int, expires_at: int | None = None) -> str:
    """Add a token; return its secret, which is not stored.

    Raises:
        TokensError: a token of that name exists and is not revoked, the name is invalid or RESERVED, or the
            file cannot be used.
    """
    secret = PREFIX + secrets.token_urlsafe(32)
    with _changing(path) as tokens:
        if name in RESERVED:
            raise TokensError(f"{name} is {RESERVED[name]}; give another")
        if any(token.name == name and token.revoked_at is None for token in tokens):
            raise TokensError(f"there is a token of {name}; revoke it first, or give another name")
        try:
            tokens.append(
                Token(
                    name=name,
                    role=role,
                    sha256=digest(secret),
                    created_at=now_ms,
                    created_by=by,
                    expires_at=expires_at,
                )
            )
        except ValidationError:
            raise TokensError(
                f"{name!r} is no name: take 1 to 64 of a-z, 0-9, dot, underscore, at sign, hyphen; begin "
                "with a letter or digit"
            ) from None
    return secret


def revoke(path: Path, name: str, by: str, now_ms: int) -> None:
    """Revoke the token of a name; it stays in the file, to be listed.

    Raises:
        TokensError: there is no token of that name, it is revoked already, or the file cannot be used.
    """
    with _changing(path, must_exist=True) as tokens:
        for index, token in enumerate(tokens):
            if token.name == name and token.revoked_at is None:
                tokens[index] = token.model_copy(update={"revoked_at": now_ms, "revoked_by": by})
                return
        raise TokensError(f"there is no token of {name} to revoke; see `fraud tokens list`")


@contextmanager
def _changing(path: Path, *, must_exist: bool = False) -> Iterator[list[Token]]:
    """Lock the file and yield its tokens as a list; write the list back unless an error is raised."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise TokensError(
            f"{path} cannot be written: {fault.strerror}; choose a directory that you may write"
        ) from fault
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tokens = list(read(path)) if must_exist or path.exists() else []
        yield tokens
        _write(path, _File(tokens=tuple(tokens)).model_dump_json(indent=1).encode() + b"\n")
    finally:
        os.close(lock)


def _write(path: Path, content: bytes) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as fault:
        raise TokensError(f"{path} cannot be written: {fault.strerror}; nothing was changed") from fault


class TokensFile:
    """Cached view of the tokens file, reloaded whenever the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()
        self._fresh()

    def find(self, secret: str) -> Token | None:
        """Find the token of a secret, with constant-time comparisons of the hashes.

        Raises:
            TokensError: the file has changed and cannot be used, so revocations are unknown.
        """
        secret_digest, match = digest(secret), None
        for token in self._fresh():
            if hmac.compare_digest(token.sha256, secret_digest):
                match = token
        return match

    def _fresh(self) -> tuple[Token, ...]:
        try:
            stat_now = self._path.stat()
            version: tuple[int, ...] | None = (
                stat_now.st_mtime_ns,
                stat_now.st_ctime_ns,
                stat_now.st_ino,
                stat_now.st_size,
                stat_now.st_mode,
            )
        except OSError:
            version = None
        if version is None or version != self._version:
            self._version = None
            self._tokens = read(self._path)
            self._version = version
        return self._tokens
