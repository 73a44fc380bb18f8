"""`fraud schemas`: copies schemas from a registry to the topic where the job finds them."""

import json
from typing import Annotated

import typer

from streaming_job import environment
from streaming_job.contracts import ContractError, record_schemas
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.schemas import ledger, registry
from streaming_job.schemas.registry import RegistryError

app = typer.Typer(no_args_is_help=True, help="Publish the schemas of framed transactions.")


@app.callback()
def schemas() -> None:
    """Publish the schemas of framed transactions."""  # without this, `publish` would have no name of its own


@app.command()
def publish(
    url: Annotated[
        str, typer.Option("--registry", help="Registry, https://...; Apicurio's with /apis/ccompat/v7")
    ],
    subject: Annotated[str, typer.Option(help="Subject of the values")] = "transactions-value",
    version: Annotated[
        int | None, typer.Option(min=1, help="Version of the subject; default: the newest")
    ] = None,
    authorization: Annotated[
        str,
        typer.Option(
            envvar="FRAUD_REGISTRY_AUTHORIZATION",
            help="HTTP header Authorization, such as `Basic ...`; a variable is in no list of processes",
        ),
    ] = "",
) -> None:
    """Copy a schema from a registry to the topic from which the job learns it, before a producer uses it.

    A schema whose records could not keep the contract of transactions is refused.

    Example: fraud schemas publish --registry https://registry:8081
    """
    settings = environment.settings(LetterSettings)
    event = registry.event(url, subject, version, authorization)
    try:
        schema = record_schemas.read(event)
    except ContractError as fault:
        raise RegistryError(f"{subject}: {fault}") from fault
    is_new = ledger.publish(settings, schema, event)
    state = "is published: producers may use it now" if is_new else "was published before"
    typer.echo(f"{subject}, version {json.loads(event)['version']}: schema {schema.schema_id} {state}")
