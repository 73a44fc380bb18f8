"""Permissions of the users of the guarded listener."""

from collections.abc import Iterable

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from streaming_job.contracts.permissions import Permission


def bindings(user: str, permissions: Iterable[Permission]) -> list[AclBinding]:
    """Return ACLs that allow a user the operations, one for each operation."""
    return [
        AclBinding(
            ResourceType[permission.resource.name],
            permission.name,
            ResourcePatternType.PREFIXED if permission.is_prefix else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation.name],
            AclPermissionType.ALLOW,
        )
        for permission in permissions
        for operation in permission.operations
    ]


def grant(bootstrap_servers: str, user: str, permissions: Iterable[Permission]) -> None:
    """Allow a user the operations.

    Args:
        bootstrap_servers: a listener that needs no login.
        user: the user.
        permissions: the permissions, which may exist already.

    Raises:
        KafkaException: the broker does not answer, or refuses.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for result in admin.create_acls(bindings(user, permissions)).values():
        result.result(30)
