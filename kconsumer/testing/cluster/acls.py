"""Access control lists: who may do what with which resource, by the rules of Kafka's StandardAuthorizer.

Until the first ACL is added, everything is allowed, unless `authorizer.class.name` is set. Afterwards, an operation is
allowed if an ACL allows it and no ACL denies it. If no ACL names a resource, every operation on this resource is
denied, unless `allow.everyone.if.no.acl.found` is true. Super users may do everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from kconsumer.testing.cluster.requests import Request
from kconsumer.testing.cluster.settings import Settings

ALL, ANY_USER, ANY_NAME = "ALL", "User:*", "*"
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = "topic", "group", "cluster", "transactional_id"
CLUSTER_NAME = "kafka-cluster"
CLIENT_HOST = "127.0.0.1"  # of all clients
#: An operation -> the operations whose allow also allows it.
IMPLIED_BY = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}
#: The numbers of the operations in the protocol. Their bits are set in fields of authorized operations.
NUMBERS = {
    ALL: 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}
#: Resource type -> the operations that it has.
OPERATIONS = {
    TOPIC: {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", ALL},
    GROUP: {"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", ALL},
    CLUSTER: {"CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"}
    | {ALL},
    TRANSACTIONAL_ID: {"WRITE", "DESCRIBE", ALL},
}


@dataclass(frozen=True)
class Acl:
    """One access control list entry."""

    principal: str  # such as "User:alice"; "User:*" is everyone
    operation: str  # Kafka's name, such as "READ"; "ALL" is every operation
    resource_type: str  # one of OPERATIONS
    name: str = ANY_NAME  # of the resource; "*" is every name
    prefixed: bool = False  # True: all resources whose name begins with `name`
    allow: bool = True  # False: deny
    host: str = "*"  # the address of the clients; "*" is every address

    def concerns(self, resource_type: str, name: str) -> bool:
        """Returns whether the entry's resource type and name (or prefix) match a resource."""
        if self.resource_type != resource_type:
            return False
        return name.startswith(self.name) if self.prefixed else self.name in (ANY_NAME, name)

    def matches(self, principal: str, operation: str) -> bool:
        """Returns whether the entry applies to an operation of a principal.

        As in Kafka, an entry that allows READ, WRITE, DELETE or ALTER also allows DESCRIBE, and one that allows
        ALTER_CONFIGS also allows DESCRIBE_CONFIGS. An entry that denies an operation denies only this operation.
        """
        implied = IMPLIED_BY.get(operation, set()) if self.allow else set()
        concerned = self.principal in (ANY_USER, principal) and self.host in (ANY_NAME, CLIENT_HOST)
        return concerned and self.operation in {ALL, operation, *implied}


class Acls:
    """The access control lists of a cluster."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rows: dict[Acl, None] = {}
        self.enabled = bool(settings.authorizer_class_name)  # False: everything is allowed

    def rows(self) -> list[Acl]:
        """Returns all entries."""
        return list(self._rows)

    def add(self, acl: Acl) -> None:
        """Add an entry. Adding the first entry enables the checks; until then, everything is allowed."""
        self.enabled = True
        self._rows[acl] = None

    def remove(self, acl: Acl) -> None:
        """Remove an entry. Does nothing if it was not added."""
        self._rows.pop(acl, None)

    def allows(self, principal: str, operation: str, resource_type: str, name: str) -> bool:
        """Returns whether a principal may perform an operation on a resource. Returns True until the first `add`."""
        if not self.enabled or principal in self._settings.super_users:
            return True
        rows = [acl for acl in self._rows if acl.concerns(resource_type, name)]
        if not rows:
            return self._settings.allow_everyone_if_no_acl_found
        matching = [acl.allow for acl in rows if acl.matches(principal, operation)]
        return bool(matching) and all(matching)

    def allowed(self, request: Request, operation: str, resource_type: str, name: str) -> bool:
        """Returns whether the client that sent a request may perform an operation on a resource."""
        return self.allows(request.connection.principal, operation, resource_type, name)

    def authorized_operations(self, principal: str, resource_type: str, name: str) -> int:
        """Returns the operations that a principal may perform on a resource, as the bits of their numbers."""
        operations = OPERATIONS[resource_type] - {ALL}
        return sum(1 << NUMBERS[op] for op in operations if self.allows(principal, op, resource_type, name))

    def allows_any(self, principal: str, operation: str, resource_type: str) -> bool:
        """Returns whether a principal may perform an operation on at least one resource of a type.

        Only resources that an allow entry names are checked. Returns True until the first `add`.
        """
        names = {acl.name for acl in self._rows if acl.resource_type == resource_type and acl.allow}
        everyone = not self.enabled or self._settings.allow_everyone_if_no_acl_found
        return everyone or any(self.allows(principal, operation, resource_type, name) for name in sorted(names))
