"""The description of the API: every operation has an example answer, every problem code an explanation."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.local_client import LocalClient
from harness.progress_records import progress

from service.app import create_app
from service.health import examples
from service.problem_codes import TABLE
from service.rollouts.errors import FencedError
from service.settings import ServiceSettings
from streaming_job.contracts import Reason
from streaming_job.labels.ledger import LedgerError, LedgerUnansweredError

pytestmark = pytest.mark.unit
PROJECT = Path(__file__).parents[2]
RAISED = {"Problem", "_unauthorised", "RefusedError", "UnknownError", "StaleError", "UnansweredError"}
"""Functions and errors that get a problem code as one of their first two arguments."""
CHECKING = {"refusing", "_asking"}
"""Context managers that give the errors of their block a code."""


@pytest.fixture(scope="module")
def client() -> LocalClient:
    """Client of a sidecar whose threads were never started."""
    return LocalClient(create_app(ServiceSettings(bootstrap_servers="127.0.0.1:1")))


@pytest.fixture(scope="module")
def document(client: LocalClient) -> dict[str, Any]:
    result: dict[str, Any] = client.get("/openapi.json").json()
    return result


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def test_every_operation_is_described_with_an_example_answer(document: dict[str, Any]) -> None:
    assert len(document["paths"]) >= 15
    for name, operation in operations(document):
        assert len(operation["description"].split()) > 2, name
        (status,) = [status for status in operation["responses"] if status.startswith("2")]
        (content,) = operation["responses"][status]["content"].values()
        assert content.get("example"), name
        if "requestBody" in operation:
            body = operation["requestBody"]["content"]["application/json"]
            schema = document["components"]["schemas"][body["schema"]["$ref"].rpartition("/")[2]]
            assert body.get("example") or schema.get("examples"), name


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def test_every_reference_has_its_target(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert {name.rpartition("/")[2] for name in references(document)} <= set(schemas)


def test_a_refusal_keeps_its_own_example(document: dict[str, Any]) -> None:
    answers = document["paths"]["/v1/rollouts"]["post"]["responses"]
    for status in ("409", "422", "503"):
        (content,) = answers[status]["content"].values()
        assert content["example"]["status"] == int(status)
    assert "422" not in document["paths"]["/v1/audit"]["get"]["responses"]


def test_the_example_of_progress_has_fields_of_a_record() -> None:
    (record,) = examples.PROGRESS["groups"].values()
    assert set(record) <= set(progress())


def test_the_type_of_a_problem_leads_to_the_explanation_of_its_code(
    client: LocalClient, document: dict[str, Any]
) -> None:
    explained = document["components"]["schemas"]["Problem"]["properties"]["code"]["anyOf"]
    by_anchor = {entry["$anchor"]: entry for entry in explained}
    problem = client.get("/nothing/here").json()
    path, _, anchor = problem["type"].partition("#")
    assert path == "/openapi.json"
    assert by_anchor[anchor]["const"] == problem["code"]
    assert "nothing at this path" in by_anchor[anchor]["description"]
    assert len(by_anchor) == len(explained)


def test_every_code_is_explained() -> None:
    used = {"trust", "golden", "answers"}  # from models.loading, outside of service
    used |= {Reason.UNKNOWN_ROLLOUT, Reason.LAST_ROLLOUT, Reason.ROLLOUT_CONFLICT}  # from models.rollouts
    used |= {FencedError().check, LedgerError.check, LedgerUnansweredError.check}
    used |= {"failed", "method_not_allowed"}  # of errors without a code of their own
    for path in (PROJECT / "service").rglob("*.py"):
        if path.name == "verdicts.py" and path.parent.name == "rollouts":
            continue  # used by the command line only
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
            if name in RAISED | CHECKING:
                texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                used |= {
                    text for text in texts[:2] if isinstance(text, str) and re.fullmatch(r"[a-z_]+", text)
                }
    codes = [code for row in TABLE for code in row.codes]
    assert len(codes) == len(set(codes))
    assert used == set(codes), used ^ set(codes)
