"""Settings with which components and tools log in to the brokers of an installed job."""

from typing import Any

from loadtests.faults.installation import Installation
from streaming_job.contracts.permissions import Component
from streaming_job.settings import JobSettings


def logged_in(installed: Installation, component: Component, **changes: Any) -> JobSettings:
    """Settings for a component that logs in as its own user, which gets its permissions.

    Args:
        installed: the installation.
        component: the component.
        changes: changed settings of the job.
    """
    installed.grant(component, **changes)
    kafka = {**installed.settings.kafka, "sasl.username": component.value}
    return installed.settings.model_copy(update={**changes, "kafka": kafka})


def without_login(installed: Installation) -> JobSettings:
    """Settings for a tool that has every permission: through the listener that needs no login."""
    servers = installed.stack.bootstrap_servers
    return installed.settings.model_copy(update={"bootstrap_servers": servers, "kafka": {}})
