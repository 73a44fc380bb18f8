import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from deploy.local import jars
from deploy.local.errors import StackError
from streaming_job.settings import JobSettings

pytestmark = pytest.mark.without_stack
SHA = "0" * 64


@pytest.mark.unit
def test_lock_names_each_archive_once_and_covers_every_group() -> None:
    pinned = jars.parse(jars.LOCK_FILE.read_text())
    assert len({jar.path for jar in pinned}) == len(pinned)
    for group in jars.GROUPS:
        modules = [(jar.organisation, jar.artifact) for jar in pinned if group in jar.groups]
        assert modules
        assert len(set(modules)) == len(modules), "two versions of one module on one class path"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({"checkpoint": "/data/checkpoint"}, ["spark"]),
        ({"checkpoint": "s3a://bucket/checkpoint"}, ["spark", "s3"]),
        ({"checkpoint": "/data/checkpoint", "predecessor_checkpoint": "s3a://bucket/old"}, ["spark", "s3"]),
        ({"checkpoint": "s3a://bucket/checkpoint", "spark": {"spark.jars": "mine.jar"}}, ["spark"]),
        ({"checkpoint": "abfss://box@account/checkpoint"}, ["spark"]),
    ],
)
def test_a_job_gets_the_archives_of_s3_if_a_checkpoint_is_there(
    changes: dict[str, Any], groups: list[jars.Group]
) -> None:
    settings = JobSettings(
        bootstrap_servers="nowhere", mlflow_tracking_uri="nowhere", work_dir=Path("work"), **changes
    )
    assert jars.groups_of(settings) == groups


@pytest.mark.unit
def test_comments_and_empty_lines_are_ignored() -> None:
    text = f"# why\n\nconnect,kafka org.example:some-thing_2.13:1.0.Final sha256:{SHA}\n"
    assert jars.parse(text) == (
        jars.Jar(frozenset({"connect", "kafka"}), "org.example", "some-thing_2.13", "1.0.Final", SHA),
    )


@pytest.mark.unit
@pytest.mark.parametrize(
    "line",
    [
        f"kafka org.example:thing sha256:{SHA}",
        f"rabbit org.example:thing:1 sha256:{SHA}",
        "kafka org.example:thing:1 sha256:abc",
        "kafka org.example:thing:1",
    ],
)
def test_damaged_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(StackError, match=r"line 2 of jars\.lock"):
        jars.parse(f"# head\n{line}\n")


def lock_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(text)
    monkeypatch.setattr(jars, "LOCK_FILE", lock)


@pytest.mark.unit
def test_present_archives_need_neither_java_nor_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"an archive"
    lock_of(monkeypatch, tmp_path, f"spark org.a:b:1 sha256:{hashlib.sha256(content).hexdigest()}\n")
    (tmp_path / "org.a").mkdir()
    (tmp_path / "org.a" / "b-1.jar").write_bytes(content)
    monkeypatch.setenv("PATH", "")
    assert jars.ensure("spark", cache=tmp_path) == [tmp_path / "org.a" / "b-1.jar"]


def local_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> Path:
    """A repository on disk, configured by FRAUD_IVY_SETTINGS like a mirror."""
    repository = tmp_path / "repository"
    archive = repository / "org" / "a" / "b" / "1" / "b-1.jar"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(content)
    settings = tmp_path / "ivysettings.xml"
    text = jars.SETTINGS_FILE.read_text()
    settings.write_text(text.replace('name="maven" ', f'name="maven" root="{repository.as_uri()}" '))
    monkeypatch.setenv("FRAUD_IVY_SETTINGS", str(settings))
    return repository


@pytest.mark.integration
def test_missing_archive_is_fetched_verified_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = local_repository(tmp_path, monkeypatch, b"genuine")
    lock_of(monkeypatch, tmp_path, f"spark org.a:b:1 sha256:{hashlib.sha256(b'genuine').hexdigest()}\n")
    cache = tmp_path / "cache"
    (path,) = jars.ensure("spark", cache=cache)
    assert path.read_bytes() == b"genuine"
    path.write_bytes(b"damaged on disk")
    assert jars.ensure("spark", cache=cache)[0].read_bytes() == b"genuine"
    shutil.rmtree(repository)
    assert jars.ensure("spark", cache=cache) == [path]


@pytest.mark.integration
def test_archive_with_another_digest_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_repository(tmp_path, monkeypatch, b"forged")
    lock_of(monkeypatch, tmp_path, f"spark org.a:b:1 sha256:{SHA}\n")
    with pytest.raises(StackError, match=r"b-1\.jar has sha256 .* not installed"):
        jars.ensure("spark", cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.jar"))


@pytest.mark.integration
def test_an_unreachable_repository_is_reported_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = local_repository(tmp_path, monkeypatch, b"genuine")
    shutil.rmtree(repository)
    lock_of(monkeypatch, tmp_path, f"spark org.a:b:1 sha256:{SHA}\n")
    with pytest.raises(StackError, match=r"cannot fetch Java archives .* FRAUD_IVY_SETTINGS"):
        jars.ensure("spark", cache=tmp_path / "cache")
