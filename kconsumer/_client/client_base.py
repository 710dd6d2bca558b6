"""ClientBase: what consumers of all kinds share: names, timeouts, `wakeup`, and what happens without a close().

`blocking_client.py` and `aio/awaitable_client.py` add how such a consumer is closed.
"""

from __future__ import annotations

import contextlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, Unpack

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.foreign_methods import existing
from kconsumer._core.lock import Clock, Timer
from kconsumer.config.options import ConsumerConfig, apply_update, read_update
from kconsumer.engine.access_guard import AccessGuard
from kconsumer.engine.iteration import Iteration
from kconsumer.engine.shared_calls import loop_read, shared, shared_read
from kconsumer.errors import ForkedConsumerError, StateError

if TYPE_CHECKING:
    from datetime import timedelta

    from kconsumer._internal.status import ConsumerStatus, Health
    from kconsumer.config.signature import UpdatableOptions
    from kconsumer.engine.client_engine import ClientEngine
    from kconsumer.health import Facts

LIKELY_MS = 1000  # an int from here on is probably meant in ms
log = get_logger(__name__)
Timeout: TypeAlias = "float | timedelta | None"


class ClientBase(ABC):
    """The part of a consumer that depends neither on how its methods wait, nor on the kind of its group."""

    _config: ConsumerConfig
    _engine: ClientEngine
    _clock: Clock
    _created: float  # ms
    _guard: AccessGuard
    _iteration: Iteration
    _closing = False  # close() was called
    _warn, _suppress = staticmethod(warnings.warn), contextlib.suppress  # without the GIL, `__del__` finds no modules
    _how_to_close: str  # the advice of the warning about a consumer that was not closed

    def _start(self, config: ConsumerConfig, engine: ClientEngine, topics: Sequence[str]) -> None:
        """Set the fields that all consumers have, and subscribe to the topics of the constructor, if there are any."""
        self._config = config
        self._engine = engine
        self._clock = engine.components.clock
        self._created = self._clock.now()
        self._iteration = Iteration()
        self._guard = self._create_guard()
        if topics:
            try:
                self.subscribe(topics)
            except BaseException:  # the user does not get this consumer, and cannot close it
                self._guard.closed = True
                self._engine.abandon()
                raise

    def _create_guard(self) -> AccessGuard:
        """Returns the guard that decides which thread may call a method."""
        parts = self._engine.components
        return AccessGuard(parts.step, parts.end_wait)

    @abstractmethod
    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics."""

    def _check_change(self) -> None:
        """Raise StateError if the subscription or the assignment cannot be changed now."""
        return

    @abstractmethod
    def _drop_subscription(self) -> None:
        """Unsubscribe, because the user has passed an empty list to `subscribe` or `assign`."""

    @abstractmethod
    def _drop_unreached(self) -> None:
        """Drop the records that a `for` loop over the consumer has not reached, because close() begins."""

    # --- options -----------------------------------------------------------------------------------------------------

    def update_options(self, **options: Unpack[UpdatableOptions]) -> None:
        """Change options while the consumer runs. They take effect with the next poll and the next request for records.

        The options are `max_poll_records`, `fetch_max_bytes`, `max_partition_fetch_bytes`, `fetch_min_bytes`,
        `fetch_max_wait_ms` and `buffer_memory`; a share consumer has neither the third nor the last of them. Raises
        ConfigError, without a change, for any other option, for a value that is not allowed, and if options contradict
        each other. Any thread may call this while another thread polls.
        """
        self._update_options(read_update(self._config, options))

    @shared
    def _update_options(self, update: Mapping[str, Any]) -> None:
        with self._engine.components.changing():
            apply_update(self._config, update)
            self._engine.components.options_updated()
            self._engine.driver.request_manager_poll()

    # --- status, health ----------------------------------------------------------------------------------------------

    @shared_read
    def status(self) -> ConsumerStatus:
        """Returns the state of the group, of the connections and of the partitions, and what the consumer waits for.

        Uses no network. `str()` of the result is the text for a bug report.
        """
        return self._read_status()

    @abstractmethod
    def _read_status(self) -> ConsumerStatus:
        """Returns the result of `status`. The calling thread may hold the lock."""

    def health(self, max_lag: int | None = None, max_lag_seconds: float | None = None) -> Health:
        """Returns whether the consumer is healthy, and the reasons if it is not: see `kconsumer.health.Health`.

        It is healthy if it polls in time, is a member of its group, reaches the brokers, and if each assigned partition
        is fetched or paused. With `max_lag`, also no partition may have a lag of more records, and with
        `max_lag_seconds` none whose `records-lag-seconds` is larger: the age of the last record that was returned, if
        there are more. Uses no network. A closed consumer is not healthy. Any thread may call this, also for a consumer
        of an event loop.
        """
        from kconsumer._internal.status import Health  # imported when used
        from kconsumer.health import check_limits, verdict

        check_limits(max_lag, max_lag_seconds)
        try:
            return verdict(self._health_facts(), max_lag, max_lag_seconds)
        except (StateError, ForkedConsumerError) as error:  # it is closed, is being closed, or was interrupted
            live = self._idle_s() <= self._config.max_poll_interval_ms / 1000  # else the program hangs
            return Health(False, (str(error),), live=live)

    @loop_read
    def _health_facts(self) -> Facts:
        from kconsumer.health import Facts  # imported when used
        from kconsumer.state.subscription import SubscriptionKind

        parts = self._engine.components
        with parts.lock:
            now, heartbeat = self._clock.now(), parts.heartbeat
            return Facts(
                status=self._read_status(),
                subscribed=parts.subscription.kind is not SubscriptionKind.NONE,
                joins=parts.subscription.is_group_managed,
                paused=parts.assignment.paused(),
                polled=self._engine.polls.last_poll is not None,
                idle_s=self._idle_s(),
                in_time=self._in_poll if heartbeat is None else heartbeat.polled_in_time(now),
                max_poll_interval_s=self._config.max_poll_interval_ms / 1000,
                lag_seconds=parts.lag_seconds(now),
                lost_thread=self._engine.driver.has_lost_thread,
            )

    def _idle_s(self) -> float:
        """Returns the time since the last poll began (s), or since the consumer was created."""
        last_poll = self._engine.polls.last_poll
        return (self._clock.now() - (self._created if last_poll is None else last_poll)) / 1000

    @property
    def _in_poll(self) -> bool:
        """True while a call runs that may be a poll."""
        return bool(self._guard.holder)

    def _on_closed(self, notify: Callable[[], object]) -> None:
        """Call `notify` when close() ends, on the thread that closes the consumer."""
        self._engine.when_ended(notify)

    # --- ending ------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the running blocking call raise WakeupError. If none is running, the next one raises it.

        Any thread or signal handler may call this.
        """
        self._engine.wakeup()

    def __del__(self) -> None:
        guard = getattr(self, "_guard", None)
        if guard is None or guard.closed:
            return
        if guard.forked:
            self._engine.abandon()
            return
        guard.closed = True
        try:
            message = f"unclosed <{self._name()}>; {self._how_to_close}"
            self._warn(message, ResourceWarning, stacklevel=2, source=self)
        finally:  # a filter may turn the warning into an exception
            with self._suppress(Exception):  # such as errors of modules that are gone when the process ends
                self._engine.drop()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied; make one in each process")

    # --- names, arguments --------------------------------------------------------------------------------------------

    def __dir__(self) -> list[str]:
        return existing(self, super().__dir__())

    def _name(self) -> str:
        group = f" group={self._config.group_id!r}" if self._config.group_id else ""
        return f"{type(self).__name__} {self._config.client_id!r}{group}"

    if not TYPE_CHECKING:  # a checker would not find the parameters of the constructor

        def __new__(cls, *arguments, **options):
            """Create a consumer. Raises TypeError for a mapping of options, and for its entries as arguments.

            The consumer of confluent-kafka takes such a mapping. The message names `from_config`, which takes one here.
            """
            mapping = bool(arguments) and isinstance(arguments[0], Mapping)
            dotted = "bootstrap_servers" not in options and "bootstrap.servers" in options
            if (mapping or dotted) and cls.__init__.__module__.startswith("kconsumer."):
                raise TypeError(
                    f"{cls.__name__}() takes topics, and options by name; for a mapping of options write "
                    f"{cls.__name__}.from_config({{…}}, 'topic')"
                )
            return super().__new__(cls)

    def _timer(self, timeout: Timeout) -> Timer:
        return Timer(self._clock, timeout_in_ms(timeout, self._config.default_api_timeout_ms))

    def _timeout_ms(self, timeout: Timeout) -> float:
        return timeout_in_ms(timeout, self._config.default_api_timeout_ms)


def timeout_in_ms(timeout: Timeout, default_ms: int) -> float:
    """Returns a timeout in ms. None means `default_ms`.

    Raises TypeError for what is neither a number nor a timedelta, and ValueError for a negative timeout.
    """
    if timeout is None:
        return float(default_ms)
    # Not isinstance(): a program that passes no timedelta does not import `datetime`, which takes a millisecond.
    if hasattr(timeout, "total_seconds"):
        seconds = timeout.total_seconds()
    elif hasattr(timeout, "__float__") or hasattr(timeout, "__index__"):
        seconds = float(timeout)
        if seconds >= LIKELY_MS and isinstance(timeout, int):
            log.warning("a timeout of %d s: timeouts are in seconds, not in ms", timeout)
    else:
        raise TypeError(f"a timeout must be a number of seconds or a timedelta, not {timeout!r}")
    if not seconds >= 0:
        raise ValueError(f"a timeout cannot be negative: {seconds} s")
    return seconds * 1000.0


def topic_names(topics: Iterable[str]) -> list[str]:
    """Returns the topics of a subscription. Raises TypeError or ValueError if one is not a name."""
    if isinstance(topics, str):
        raise TypeError(f"subscribe() takes a list of topics, not one string; write subscribe([{topics!r}])")
    if not hasattr(topics, "__iter__"):
        raise TypeError(f"subscribe() takes a list of topics, not {topics!r}")
    names = list(topics)
    for name in names:
        if not isinstance(name, str) or not name.strip():
            hint = "" if isinstance(name, str) else "; write Consumer('a', 'b'), or subscribe(['a', 'b'])"
            raise ValueError(f"not a topic name: {name!r}{hint}")
        if name.startswith("^"):
            raise ValueError(
                f"not a topic name: {name!r}; for a pattern pass re.compile({name[1:]!r}), which matches whole names"
            )
    return names
