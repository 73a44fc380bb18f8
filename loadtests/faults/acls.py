"""Permissions of the users of the guarded listener: the embedded broker's listener with authentication."""

from collections.abc import Iterable

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.waiting import Patience
from loadtests.faults.errors import FaultError
from streaming_job.contracts.topic import Component
from streaming_job.log import clients
from streaming_job.log.clients import Address
from streaming_job.permissions import Permission

TIMEOUT_S = 30.0
POLL_S = 0.02


def bindings(component: Component, permissions: Iterable[Permission]) -> list[AclBinding]:
    """Return the ACLs that grant a component's user these permissions, one for each operation."""
    return [
        AclBinding(
            ResourceType[permission.resource.name],
            permission.name,
            ResourcePatternType.PREFIXED if permission.is_prefix else ResourcePatternType.LITERAL,
            f"User:{component}",
            "*",
            AclOperation[operation.name],
            AclPermissionType.ALLOW,
        )
        for permission in permissions
        for operation in permission.operations
    ]


def grant(bootstrap_servers: str, component: Component, permissions: Iterable[Permission]) -> None:
    """Grant permissions to a component's user, and wait until the broker applies them.

    Args:
        bootstrap_servers: a listener that needs no login.
        component: the component; its user has the same name.

    Raises:
        KafkaException: the broker does not answer, or refuses.
        FaultError: the broker does not apply them.
    """
    admin = clients.admin(Address(bootstrap_servers))
    wanted = bindings(component, permissions)
    for result in admin.create_acls(wanted).values():
        result.result(TIMEOUT_S)
    # the controller has accepted them; the broker learns of them a little later
    patience = Patience(TIMEOUT_S, POLL_S)
    while not set(wanted) <= set(admin.describe_acls(_all_of(component)).result(TIMEOUT_S)):
        patience.wait(
            lambda: FaultError(f"the broker does not apply the permissions of {component}; see its log")
        )


def _all_of(component: Component) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        f"User:{component}",
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
