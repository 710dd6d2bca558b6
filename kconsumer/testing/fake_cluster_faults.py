"""The methods of `FakeCluster` that make requests and connections fail, and those that limit what clients may do."""

from __future__ import annotations

from kconsumer.schema.dsl import Api
from kconsumer.testing.arguments import (
    ErrorLike,
    api_of,
    check_number,
    error_code_of,
    find_broker,
    find_partition,
)
from kconsumer.testing.cluster.acls import OPERATIONS, Acl
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.faults import Fault, FaultKind, corrupt_batch
from kconsumer.testing.cluster.quotas import Quota
from kconsumer.testing.server import Server

ApiLike = str | int | Api


class FaultMethods:
    """The methods of `FakeCluster` that cause faults."""

    _cluster: Cluster
    _server: Server

    def disconnect(self, broker: int) -> None:
        """Close all connections to a broker. It continues to run, so clients may connect again."""
        with self._server.change():
            self._cluster.faults.disconnect(find_broker(self._cluster, broker))

    # --- faults ---

    def fail_next(self, api: ApiLike, error: ErrorLike, times: int = 1) -> None:
        """Let the next `times` requests of an API fail with an error. The cluster does not process these requests.

        `api`: a name such as "Fetch" or "OffsetCommit". `error`: Kafka's name of an error, its number, or the exception
        that kconsumer raises for it.
        """
        self._add_fault(api, Fault(FaultKind.ERROR, times, error_code_of(error)))

    def disconnect_next(self, api: ApiLike, times: int = 1, *, applied: bool = False) -> None:
        """Close the connection instead of sending the response, for the next `times` requests of an API.

        `applied`: True if the cluster processes these requests before it closes the connection, False if they have no
        effect.
        """
        kind = FaultKind.DISCONNECT_AFTER if applied else FaultKind.DISCONNECT_BEFORE
        self._add_fault(api, Fault(kind, times))

    def truncate_next(self, api: ApiLike, times: int = 1) -> None:
        """Send only half of the response to each of the next `times` requests of an API. Then close the connection."""
        self._add_fault(api, Fault(FaultKind.HALF_RESPONSE, times))

    def corrupt_next(self, api: ApiLike, times: int = 1) -> None:
        """Change one byte of the response to each of the next `times` requests of an API."""
        self._add_fault(api, Fault(FaultKind.CORRUPT_RESPONSE, times))

    def delay(self, api: ApiLike, seconds: float) -> None:
        """Delay all responses of an API by `seconds` from now on. 0 ends the delay."""
        check_number("seconds", seconds)
        with self._server.change():
            self._cluster.faults.delay(api_of(self._cluster.apis, api), seconds * 1000)

    def corrupt(self, topic: str, partition: int, offset: int) -> None:
        """Change the checksum of the stored batch that contains `offset`, so that it is wrong.

        Raises ValueError if no batch contains the offset.
        """
        with self._server.change():
            corrupt_batch(find_partition(self._cluster, topic, partition).log, offset)

    def interrupt_network(self, broker: int) -> None:
        """Hold all requests to a broker, and all its responses, until `restore_network`."""
        with self._server.change():
            self._cluster.faults.interrupt(find_broker(self._cluster, broker))

    def restore_network(self, broker: int) -> None:
        """Pass on the requests and responses that were held since `interrupt_network`."""
        with self._server.change() as now:
            self._cluster.faults.restore(find_broker(self._cluster, broker), now)

    def limit_rate(self, broker: int, bytes_per_second: float | None) -> None:
        """Limit the rate at which each connection receives from a broker. None ends the limit."""
        if bytes_per_second is not None:
            check_number("bytes_per_second", bytes_per_second, positive=True)
        with self._server.change() as now:
            self._cluster.faults.limit_rate(find_broker(self._cluster, broker), bytes_per_second, now)

    def skew_clock(self, broker: int, seconds: float) -> None:
        """Set by how many seconds the clock of a broker is ahead of the other clocks."""
        with self._server.change():
            self._cluster.faults.skew_clock(find_broker(self._cluster, broker), seconds * 1000)

    def _add_fault(self, api: ApiLike, fault: Fault) -> None:
        if isinstance(fault.times, bool) or not isinstance(fault.times, int) or fault.times < 1:
            raise ValueError(f"times is how many requests have the fault, at least 1; not {fault.times!r}")
        with self._server.change():
            self._cluster.faults.add(api_of(self._cluster.apis, api), fault)


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
