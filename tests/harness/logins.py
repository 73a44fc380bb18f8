"""Settings with which components and tools log in to the brokers of an installed job."""

from typing import Any

from loadtests.faults.acls import grant
from loadtests.faults.installation import Installation
from streaming_job.contracts.topic import Component
from streaming_job.permissions import needed
from streaming_job.settings import JobSettings


def logged_in(installed: Installation, component: Component, **changes: Any) -> JobSettings:
    """Give a component's user its permissions; return settings with which the component logs in as that user.

    Args:
        changes: changed settings of the job.
    """
    settings = installed.settings.model_copy(update=changes)
    grant(installed.stack.bootstrap_servers, component, needed(component, settings))
    return settings.model_copy(update={"kafka": {**settings.kafka, "sasl.username": component.value}})


def without_login(installed: Installation) -> JobSettings:
    """Settings for a tool that has every permission: through the listener that needs no login."""
    servers = installed.stack.bootstrap_servers
    return installed.settings.model_copy(update={"bootstrap_servers": servers, "kafka": {}})
