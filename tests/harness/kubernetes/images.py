"""The images of production as archives that containerd imports."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness import containers

BUILDAH = ("buildah", "--storage-driver", "overlay")
BUILT = ("job", "sidecar", "tools")
NEXT = "job-next"
"""Another release of the job: the same but for a label, so the digest is another one."""
NAMES = {
    "pause": "localhost/pause:1",
    **{built: f"localhost/card-fraud-{built}:1" for built in BUILT},
    NEXT: "localhost/card-fraud-job:2",
}


@dataclass(frozen=True)
class Image:
    """An image in an archive."""

    archive: Path
    """Its layers are not compressed, so that they are unpacked fast."""
    name: str
    """With its tag, as containerd calls it after the import."""

    @property
    def repository(self) -> str:
        """The name without the tag."""
        return self.name.rpartition(":")[0]


def image(name: str, directory: Path) -> Image:
    """Return one of the exported images: of BUILT, "pause" or NEXT."""
    return Image(directory / f"{name}.tar", NAMES[name])


def export(pause: Path, directory: Path) -> None:
    """Build all images, and write an archive of each into a directory.

    Args:
        pause: the program that holds a pod's namespaces.
        directory: has the archives of the last run, of which the valid ones stay.
    """
    directory.mkdir(parents=True, exist_ok=True)
    containers.build(directory)
    made = _changed("scratch", ["copy", str(pause), "/pause"], ["config", "--entrypoint", '["/pause"]'])
    _export(made, image("pause", directory))
    for built in BUILT:
        _export(f"localhost/card-fraud-{built}", image(built, directory))
    made = _changed("localhost/card-fraud-job", ["config", "--label", "card-fraud.release=next"])
    _export(made, image(NEXT, directory))


def _changed(base: str, *steps: list[str]) -> str:
    """Return the id of an image made of another one; each step is a command of buildah on a container."""
    container = _buildah("from", "--pull-never", base)
    try:
        for command, *arguments in steps:
            at = 0 if command == "copy" else len(arguments)
            _buildah(command, *arguments[:at], container, *arguments[at:])
        return _buildah("commit", "--quiet", "--timestamp", "0", container)
    finally:
        _buildah("rm", container)


def _export(built: str, wanted: Image) -> None:
    identity = _buildah("inspect", "--type", "image", "--format", "{{.FromImageID}}", built)
    archive, mark = wanted.archive, wanted.archive.with_suffix(".id")
    if archive.exists() and mark.exists() and mark.read_text() == identity:
        return
    mark.unlink(missing_ok=True)
    archive.unlink(missing_ok=True)
    _buildah("push", "--quiet", built, f"docker-archive:{archive}:{wanted.name}")
    mark.write_text(identity)


def _buildah(*arguments: str) -> str:
    return subprocess.run(
        ["nice", "-n", "5", *BUILDAH, *arguments], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
