"""The methods of `FakeCluster` that set access control lists and quotas."""

from __future__ import annotations

from kconsumer.testing.arguments import check_number
from kconsumer.testing.cluster.acls import OPERATIONS, Acl
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.quotas import Quota
from kconsumer.testing.server import Server


class SecurityMethods:
    """The part of `FakeCluster` that limits what clients may do."""

    _cluster: Cluster
    _server: Server

    def allow(self, principal: str, operation: str, resource: str, name: str = "*", *, prefixed: bool = False) -> None:
        """Add an ACL that allows an operation. Everything is allowed until the first ACL is added.

        From then on, only what an ACL allows is allowed.

        `principal`: such as "User:alice"; "User:*" is everyone, and "User:ANONYMOUS" every client without SASL.
        `operation`: Kafka's name, such as "READ"; "ALL" is every operation.
        `resource`: "topic", "group", "cluster" or "transactional_id".
        `name`: the name of the resource; "*" is every name. If `prefixed` is True, the ACL applies to all names that
        begin with `name`.
        """
        self._add_acl(Acl(principal, operation.upper(), resource.lower(), name, prefixed))

    def deny(self, principal: str, operation: str, resource: str, name: str = "*", *, prefixed: bool = False) -> None:
        """Add an ACL that denies an operation, even if other ACLs allow it. The arguments are those of `allow`."""
        self._add_acl(Acl(principal, operation.upper(), resource.lower(), name, prefixed, allow=False))

    def set_quota(
        self,
        client_id: str,
        *,
        consumer_byte_rate: float | None = None,
        producer_byte_rate: float | None = None,
    ) -> None:
        """Set how many bytes per second a client may fetch and produce at each broker. None: unlimited."""
        for name, rate in (("consumer_byte_rate", consumer_byte_rate), ("producer_byte_rate", producer_byte_rate)):
            if rate is not None:
                check_number(name, rate, positive=True)
        with self._server.change():
            self._cluster.quotas.set(client_id, Quota(consumer_byte_rate, producer_byte_rate))

    def _add_acl(self, acl: Acl) -> None:
        if not acl.principal.startswith("User:"):
            raise ValueError(f"a principal is of the form 'User:alice'; not {acl.principal!r}")
        operations = OPERATIONS.get(acl.resource_type)
        if operations is None:
            raise ValueError(f"there is no resource {acl.resource_type!r}; there are {', '.join(OPERATIONS)}")
        if acl.operation not in operations:
            names = ", ".join(sorted(operations))
            raise ValueError(f"a {acl.resource_type} has no operation {acl.operation!r}; it has {names}")
        with self._server.change():
            self._cluster.acls.add(acl)
