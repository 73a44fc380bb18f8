"""Unknown FRAUD_ variables are refused as mistakes."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy import cli
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.environment import SettingsError, refuse_unknown
from streaming_job.settings import JobSettings

pytestmark = pytest.mark.unit
PROJECT = Path(__file__).parents[2]
NAME = re.compile(r"(?<![A-Z_])FRAUD_[A-Z0-9_]*[A-Z0-9](?![A-Z0-9_<])")
KINDS = (JobSettings, ServiceSettings, LetterSettings)


def test_every_variable_mentioned_in_the_project_is_known() -> None:
    # hidden directories hold what is installed or running, not the project
    pages = [*PROJECT.glob("[!.]*/**/*.py"), *PROJECT.glob("[!.]*/**/*.md"), PROJECT / "README.md"]
    result = {name for page in pages if page != Path(__file__) for name in NAME.findall(page.read_text())}
    fields = {f"FRAUD_{field.upper()}" for kind in KINDS for field in kind.model_fields}
    assert len(result) > 30
    refuse_unknown(result | fields | {f"FRAUD_TOPICS__{name.upper()}" for name in Topics.model_fields})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("FRAUD_KEYGROUPS", "FRAUD_KEY_GROUPS"),
        ("FRAUD_TOPICS_TRANSACTIONS", "FRAUD_TOPICS__TRANSACTIONS"),
        ("FRAUD_TOPIC__PROFILES", "FRAUD_TOPICS__PROFILES"),
        ("fraud_max_progress_age", "FRAUD_MAX_PROGRESS_AGE_S"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(
    name: str, nearest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "secret")
    for command in (["job", "run"], ["serve"], ["stack", "status"]):
        fault = CliRunner().invoke(cli.app, command).exception
        assert isinstance(fault, SettingsError)
        assert str(fault) == (
            f"{name.upper()} is no setting; did you mean {nearest}? Unset unknown variables, or see "
            "docs/settings.md"
        )


def test_variables_of_other_programs_are_ignored() -> None:
    refuse_unknown(["PATH", "ANTIFRAUD_MODE", "FRAUDULENT", "fraud_job_id"])
