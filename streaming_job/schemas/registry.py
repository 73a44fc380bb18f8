"""Schemas from a registry, by the REST API of Confluent's, which others speak, too."""

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from feature_store.errors import FraudError

TIMEOUT_S = 30.0
FORMATS = {"AVRO": "avro", "JSON": "json"}


class RegistryError(FraudError):
    """The registry does not answer, has no such schema, or has one of a kind that transactions cannot have.

    Check URL, subject and version; the message says what is wrong with a schema.
    """


def event(url: str, subject: str, version: int | None, authorization: str = "") -> bytes:
    """Return a version of a subject as a record of the topic of schemas.

    Args:
        version: None: the newest.
        authorization: the header of this name; empty: none.

    Raises:
        RegistryError: there is none, or it is no Avro or JSON Schema that is complete in itself.
    """
    found = _get(
        f"{url.rstrip('/')}/subjects/{quote(subject, '')}/versions/{version or 'latest'}", authorization
    )
    try:
        kind, schema_id, text = found.get("schemaType") or "AVRO", int(found["id"]), str(found["schema"])
        number = int(found["version"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RegistryError(f"{url} is no registry: its answer lacks id, version or schema") from None
    if kind not in FORMATS:
        raise RegistryError(f"schema {schema_id} is of kind {kind}; transactions are Avro or JSON")
    if found.get("references"):
        raise RegistryError(
            f"schema {schema_id} refers to other subjects; register one that has all its types"
        )
    fields = {
        "schema_version": 1, "schema_id": schema_id, "format": FORMATS[kind], "schema": text,
        "subject": subject, "version": number,
    }  # fmt: skip
    return json.dumps(fields).encode()


def _get(url: str, authorization: str) -> Any:
    if not url.startswith(("https://", "http://")):
        raise RegistryError(f"{url} is no URL of a registry; give https://...")
    try:
        if urlsplit(url).username is not None:
            raise RegistryError("the registry's URL has a login; set FRAUD_REGISTRY_AUTHORIZATION instead")
        request = Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"})
        if authorization:
            request.add_unredirected_header("Authorization", authorization)  # for this host only
        with urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except HTTPError as fault:
        raise RegistryError(
            f"{url}: {fault.code} {fault.reason}; check subject, version and permission"
        ) from fault
    except (OSError, ValueError, HTTPException) as fault:
        raise RegistryError(f"{url}: {fault}") from fault
