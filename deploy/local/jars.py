"""Java archives of the stack and of the job: pinned, fetched by Ivy, verified, cached per user."""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import quoteattr

from deploy.local import java, launch
from deploy.local.console import Progress, silent
from deploy.local.errors import StackError
from streaming_job.settings import JobSettings

Group = Literal["spark", "s3", "kafka", "connect", "streams"]
EVERYDAY: tuple[Group, ...] = ("spark", "kafka", "connect")
"""Groups that the job and its stack need."""
GROUPS: tuple[Group, ...] = (*EVERYDAY, "s3", "streams")
"""All groups; S3 is needed only by a job whose checkpoint is there, Kafka Streams only by `fraud compare`."""
BRING_JARS = ("spark.jars", "spark.jars.packages")
"""Properties of Spark by which an operator gives a job other jars of S3 than the pinned ones."""

LOCK_FILE = Path(__file__).with_name("jars.lock")
SETTINGS_FILE = Path(__file__).with_name("ivysettings.xml")
ATTEMPTS = 3
"""Runs of Ivy before giving up; archives of a failed run stay in Ivy's cache."""

LINE = re.compile(
    r"(?P<groups>[a-z0-9,]+) (?P<org>\S+?):(?P<name>\S+?):(?P<version>\S+) sha256:(?P<sha>[0-9a-f]{64})"
)


@dataclass(frozen=True)
class Jar:
    """One pinned archive."""

    groups: frozenset[str]
    """The groups that need it, a subset of GROUPS."""
    organisation: str
    artifact: str
    version: str
    sha256: str

    @property
    def path(self) -> Path:
        """Path inside the cache directory."""
        return Path(self.organisation) / f"{self.artifact}-{self.version}.jar"


def parse(text: str) -> tuple[Jar, ...]:
    """Parse the archives of a lock file.

    Raises:
        StackError: a line is neither empty, nor a comment, nor an archive of a known group.
    """
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = LINE.fullmatch(line.strip())
        groups = frozenset(match["groups"].split(",")) if match else frozenset[str]()
        if not match or not groups <= set(GROUPS):
            raise StackError(f"line {number} of jars.lock is damaged: restore the file from the repository")
        jars.append(Jar(groups, match["org"], match["name"], match["version"], match["sha"]))
    return tuple(jars)


def cache_directory() -> Path:
    """Return this user's cache of archives: $XDG_CACHE_HOME/card-fraud/jars, by default under ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "card-fraud" / "jars"


def ensure(group: Group, *, cache: Path | None = None, progress: Progress = silent) -> list[Path]:
    """Return the verified archives of a group; fetch missing ones first.

    Every call checks every file's sha256. Several processes may call this function at once.

    Args:
        cache: directory of the archives; default `cache_directory()`.

    Raises:
        StackError: no Java, no PySpark (which brings Ivy), no network, no disk space, a damaged jars.lock, or
            an archive with another checksum than the pinned one.
    """
    cache = cache or cache_directory()
    wanted = [jar for jar in parse(LOCK_FILE.read_text()) if group in jar.groups]
    if _missing(wanted, cache):
        with _locked(cache):
            missing = _missing(wanted, cache)  # another process may have fetched them meanwhile
            if missing:
                _fetch(missing, cache, progress)
    return [cache / jar.path for jar in wanted]


def groups_of(settings: JobSettings) -> list[Group]:
    """Return the groups that a job needs, with that of S3 if a checkpoint is there."""
    places = (settings.checkpoint, settings.predecessor_checkpoint)
    is_on_s3 = any(place.startswith("s3a:") for place in places)
    return ["spark", "s3"] if is_on_s3 and not {*BRING_JARS} & {*settings.spark} else ["spark"]


def of_job(settings: JobSettings) -> list[Path]:
    """Return the verified archives of a job, as `ensure` does."""
    return [path for group in groups_of(settings) for path in ensure(group)]


def class_path(group: Group, progress: Progress = silent) -> str:
    """Return the group's archives as the value of `java -cp`."""
    return os.pathsep.join(map(str, ensure(group, progress=progress)))


def _missing(jars: Sequence[Jar], cache: Path) -> list[Jar]:
    return [jar for jar in jars if _digest(cache / jar.path) != jar.sha256]


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise StackError(
            f"cannot keep Java archives in {cache} ({error}): make room or set XDG_CACHE_HOME"
        ) from error


def _fetch(jars: Sequence[Jar], cache: Path, progress: Progress) -> None:
    """Fetch archives with Ivy into a temporary directory, verify them and move them into the cache."""
    progress(f"fetching {len(jars)} Java archives, once per user, into {cache}")
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as temporary:
        descriptor = Path(temporary) / "ivy.xml"
        descriptor.write_text(_descriptor(jars))
        command = _ivy_command(descriptor, cache / "ivy", Path(temporary))
        for attempt in range(1, ATTEMPTS + 1):
            failure = _run_ivy(command, len(jars), progress)
            if failure is None:
                break
            if attempt == ATTEMPTS:
                raise StackError(
                    f"cannot fetch Java archives ({failure}): connect this machine to the network, or set "
                    "FRAUD_IVY_SETTINGS to an ivysettings.xml that names your mirror"
                )
            progress("fetching failed, trying again")
        for jar in jars:
            fetched = Path(temporary) / jar.path
            digest = _digest(fetched)
            if digest != jar.sha256:
                shutil.rmtree(cache / "ivy", ignore_errors=True)
                raise StackError(
                    f"{jar.path.name} has sha256 {digest}, not {jar.sha256} as pinned: not installed; "
                    "check the repository or mirror it came from"
                )
        for jar in jars:
            (cache / jar.path).parent.mkdir(parents=True, exist_ok=True)
            (Path(temporary) / jar.path).replace(cache / jar.path)
    shutil.rmtree(cache / "ivy", ignore_errors=True)
    progress("Java archives fetched and verified")


def _descriptor(jars: Sequence[Jar]) -> str:
    lines = [
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.artifact)} "
        f'rev={quoteattr(jar.version)} transitive="false"/>'
        for jar in jars
    ]
    return (
        '<ivy-module version="2.0"><info organisation="card-fraud" module="jars"/>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _ivy_command(descriptor: Path, ivy_cache: Path, target: Path) -> list[str]:
    spec = importlib.util.find_spec("pyspark")
    locations = spec.submodule_search_locations if spec else None
    ivy = next(iter(sorted(Path(locations[0]).glob("jars/ivy-*.jar"))), None) if locations else None
    if ivy is None:
        raise StackError("PySpark with its Ivy is not installed here: run make setup")
    settings = os.environ.get("FRAUD_IVY_SETTINGS") or str(SETTINGS_FILE)
    return [
        str(java.find().executable), "-Xmx256m", f"-Divy.cache.dir={ivy_cache}",
        "-cp", str(ivy), "org.apache.ivy.Main",
        "-settings", settings, "-ivy", str(descriptor),
        "-retrieve", f"{target}/[organisation]/[artifact]-[revision].[ext]",
    ]  # fmt: skip


def _run_ivy(command: Sequence[str], total: int, progress: Progress) -> str | None:
    """Run Ivy once; return None on success, else the reason of the failure."""
    reasons, fetched = ["Ivy gave no reason"], 0

    def each(line: str) -> None:
        nonlocal fetched
        if "[SUCCESSFUL ]" in line:
            fetched += 1
            if fetched % 20 == 0:
                progress(f"{fetched} of {total} jars fetched")
        elif re.search(r"Exception|not found|FAILED|timed out|[Ee]rror:", line):
            reasons.append(line.strip(" \t\n:"))

    failed = launch.run(command, each) != 0
    # the first reason that Ivy gives is the cause; the following ones are its effects
    return reasons[:2][-1] if failed else None
