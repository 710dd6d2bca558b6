"""What has failed at each address of a broker, and which of these failures are logged as warnings.

A record outlives the connections to its address, and the client's lists of brokers. So warnings stay limited when the
client starts again from the bootstrap servers, which replaces all connections.

A failure is a warning if the address has served no request: it cannot be reached, or it closes connections before the
first response. A lost connection that has served requests is a warning only if the next ones are lost soon, too:
brokers restart, and load balancers close idle connections.
"""

from __future__ import annotations

from collections.abc import Iterable

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.repeated_failures import RepeatedFailures
from kconsumer.errors import KafkaError

STABLE_MS = 60_000.0
"""After this time without a failure, or with one connection, a failure is a new one, and logged at once."""

MAX_UNLOGGED_LOSSES = 2
"""This many connections in a row may be lost soon after they served a request, before the next loss is a warning."""

MAX_RECORDS = 256

ADVERTISED = (
    "this is the address that the broker advertises, and not one of bootstrap_servers; set advertised.listeners of the "
    "broker to an address that this client can reach"
)

log = get_logger("kconsumer.net")


class AddressRecord:
    """The failures at one address, a host and a port. The connections to it share the record."""

    __slots__ = ("_is_advertised", "_losses", "_reached", "_repeats", "error", "last_used")

    def __init__(self, *, is_advertised: bool = False) -> None:
        self.last_used = 0  # the number of the last `AddressRecords.find` that returned this record
        self.error: KafkaError | None = None  # the last failure; None after a connection was ready
        self._is_advertised = is_advertised  # the address is from metadata, not from `bootstrap_servers`
        self._reached = False  # a connection was ready
        self._repeats = RepeatedFailures()
        self._losses = 0  # connections in a row that were lost soon, although they had served a request

    @property
    def hint(self) -> str:
        """A text to append to errors: what to change if the address was never reached. Empty if there is no hint."""
        return f"; {ADVERTISED}" if self._is_advertised and not self._reached else ""

    def established(self) -> None:
        """Record that a connection is ready."""
        self._reached = True
        self.error = None

    def served(self, lived_ms: float, now: float) -> None:
        """Record the end of a connection that has served requests, `lived_ms` after the attempt to connect began."""
        if lived_ms >= STABLE_MS:
            self._losses = 0
        if lived_ms >= STABLE_MS or now - self._repeats.failed_at >= STABLE_MS:
            self._repeats.reset()

    @property
    def failed_at(self) -> float:
        """When the last failure was recorded (ms)."""
        return self._repeats.failed_at

    def lost(self, error: KafkaError, now: float, next_attempt_ms: float, *, has_served: bool) -> None:
        """Log the loss of a connection. `has_served` is True if it has served a request."""
        self._losses += has_served
        if has_served and self._losses <= MAX_UNLOGGED_LOSSES:
            log.info("%s", error)
        else:
            self.failed([str(error)], error, now, next_attempt_ms)

    def failed(self, reasons: Iterable[str], error: KafkaError, now: float, next_attempt_ms: float) -> None:
        """Log a failure as a warning, unless one about it was logged recently. `reasons` describe its cause."""
        self.error = error
        self._warn(reasons, error, now, next_attempt_ms)

    def slow(self, text: str, now: float) -> None:
        """Log that an attempt or a request has had no response for a long time."""
        self._warn([text], text, now, None)

    def _warn(self, reasons: Iterable[str], error: object, now: float, next_attempt_ms: float | None) -> None:
        suppressed = self._repeats.failed(reasons, now)
        if suppressed is None:
            return
        retry = "" if next_attempt_ms is None else f"; next attempt in {next_attempt_ms:.0f} ms"
        since = f"; attempts that failed since the last warning: {suppressed}" if suppressed else ""
        log.warning("%s%s%s", error, retry, since)


class AddressRecords:
    """The records of all addresses that a client uses."""

    def __init__(self, bootstrap_servers: Iterable[tuple[str, int]] = ()) -> None:
        self._bootstrap = frozenset(bootstrap_servers)
        self._records: dict[tuple[str, int], AddressRecord] = {}
        self._finds = 0

    def recent_errors(self, now: float) -> list[KafkaError]:
        """Returns the last failure of each address that has failed within the last minute and was not reached since."""
        records = (record for record in list(self._records.values()) if now - record.failed_at < STABLE_MS)
        return [record.error for record in records if record.error is not None]

    def find(self, host: str, port: int) -> AddressRecord:
        """Returns the record of an address. Creates it if it does not exist."""
        address = host, port
        record = self._records.get(address)
        if record is None:
            if len(self._records) >= MAX_RECORDS:  # such as of brokers that get a new address at each start
                del self._records[min(self._records, key=lambda key: self._records[key].last_used)]
            record = self._records[address] = AddressRecord(is_advertised=address not in self._bootstrap)
        self._finds += 1
        record.last_used = self._finds
        return record
