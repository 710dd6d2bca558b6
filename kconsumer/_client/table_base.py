"""TableBase: what `TopicTable` and `AsyncTopicTable` share: reads, callbacks, limits, and the state.

Decides which options a table has, and what a read raises. The subclasses decide what runs the steps of the follower.
"""

from __future__ import annotations

import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from kconsumer._client.offset_arguments import at_least_one, checked_text
from kconsumer._client.table_contents import K, TableContents
from kconsumer._client.table_follower import ChangeCallback, TableFollower
from kconsumer._core.lock import fork_count
from kconsumer.errors import ConfigError, ForkedConsumerError, StateError, TimeoutError
from kconsumer.types import V

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from kconsumer._internal.status import Health
    from kconsumer.arrow import KeyValueTable
    from kconsumer.config.signature import ConsumerKeywords

    TableKey = TypeVar("TableKey", default=bytes)  # the types that deserializers return
    TableValue = TypeVar("TableValue", default=bytes)

    class TableKeywords(ConsumerKeywords, total=False):
        """The keyword arguments of tables, except the deserializers."""

        max_entries: int | None
        max_bytes: int | None


RESERVED_OPTIONS = ("group_id", "auto_offset_reset")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The state of a table, as `TopicTable.status` returns it."""

    state: str  #: "not started", "catching up", "following", "failed" or "closed"
    entries: int
    bytes: int  #: the size of the serialized keys and values
    partitions: int
    records_left: int | None  #: offsets to read until the table is caught up; None if this is not known yet
    skipped: int  #: records without a key
    error: BaseException | None  #: what ended the table, or what is being retried

    def __str__(self) -> str:
        left = "" if self.records_left is None else f", {self.records_left} records left"
        text = f"{self.state}{left if self.state == 'catching up' else ''}"
        return f"{text}: {self.entries} entries, {self.bytes} bytes, {self.partitions} partitions"


class TableBase(Mapping[K, V]):
    """The part of a table that does not depend on what follows the topic."""

    _warn = staticmethod(warnings.warn)  # without the GIL, a finalizer at the end of the process finds no modules

    _consumer: Any  # a Consumer or an AsyncConsumer
    _closed = True  # until `_set_up` has succeeded
    _started = False
    _how_to_close: str  # the advice of the warning about a table that was not closed

    def _set_up(
        self,
        topic: str,
        max_entries: int | None,
        max_bytes: int | None,
        options: Mapping[str, Any],
        create: Callable[..., Any],
        settled: Callable[[], object],
    ) -> None:
        self._topic = checked_text(topic, "the topic of a table")
        given = {name.replace(".", "_"): value for name, value in options.items()}
        for name in RESERVED_OPTIONS:
            if name in given:
                raise ConfigError(
                    f"{name} is not an option of a table: it reads all records of a topic, without a group"
                )
        contents: TableContents[K, V] = TableContents(
            topic,
            None if max_entries is None else at_least_one("max_entries", max_entries),
            None if max_bytes is None else at_least_one("max_bytes", max_bytes),
        )
        self._consumer = create(**{"allow_auto_create_topics": False, **given, "auto_offset_reset": "none"})
        self._contents = contents
        self._follower = TableFollower(topic, contents, self._consumer._config.metadata_max_age_ms, settled)
        self._forks = fork_count()
        self._closed = False

    @abstractmethod
    def _read(self) -> dict[K, V]:
        """Returns the entries. Raises an error if they cannot be read now."""

    @abstractmethod
    def _stop(self) -> None:
        """Let the steps of the follower end soon. Does not wait."""

    # --- reading -----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: K) -> V:
        return self._read()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._read()

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys of this moment."""
        return iter(self.snapshot())

    def snapshot(self) -> dict[K, V]:
        """Returns a copy of all entries, of one moment. The loops below iterate over such a copy."""
        return self._read().copy()

    def keys(self) -> KeysView[K]:
        """Returns the keys of this moment."""
        return self.snapshot().keys()

    def values(self) -> ValuesView[V]:
        """Returns the values of this moment."""
        return self.snapshot().values()

    def items(self) -> ItemsView[K, V]:
        """Returns the keys and values of this moment."""
        return self.snapshot().items()

    def to_arrow(self) -> KeyValueTable:
        """Returns the entries of this moment as the Arrow columns `key` and `value`. This needs pyarrow.

        Arrow types are those that pyarrow infers, and binary without deserializers. Raises TypeError for objects that
        have no Arrow type, such as those of different types, or of classes.
        """
        from kconsumer.arrow import KeyValueTable  # imported when used

        config = self._consumer._config
        key_type, value_type = (
            "binary" if deserializer is None else None
            for deserializer in (config.key_deserializer, config.value_deserializer)
        )
        return KeyValueTable(self.snapshot(), key_type, value_type)

    # --- changes and state -------------------------------------------------------------------------------------------

    def on_change(self, callback: ChangeCallback[K, V]) -> ChangeCallback[K, V]:
        """Call `callback(key, value)` after each change, in the order of changes. `value` is None after a deletion.

        A callback that is there when the table becomes ready is first called for each of the entries, so it needs no
        loop over them. It runs in the thread or task that reads the topic: the table is not updated meanwhile. What
        it raises is logged, and changes nothing. Returns the callback, so this can be a decorator.
        """
        if not callable(callback):
            raise TypeError(f"on_change() takes a function: callback(key, value), not {callback!r}")
        self._check_callback(callback)
        self._follower.callbacks.append(callback)
        return callback

    def _check_callback(self, callback: ChangeCallback[K, V]) -> None:
        """Raise TypeError if the table cannot call the callback."""
        return

    @property
    def ready(self) -> bool:
        """True if the table has caught up with the topic, and can be read."""
        return self._follower.ready and self._follower.failure is None and not self._closed

    def status(self) -> TableStatus:
        """Returns the state of the table. Does not wait, and raises nothing."""
        follower, contents = self._follower, self._contents
        return TableStatus(
            self._state(),
            len(contents.values),
            contents.bytes,
            len(follower.partitions),
            follower.records_left,
            contents.skipped,
            follower.failure or follower.problem,
        )

    def health(self, max_lag: int | None = None, max_lag_seconds: float | None = None) -> Health:
        """Returns whether the table is up to date, and the reasons if it is not. Any thread may call this.

        The table must be ready, and its consumer healthy: see `Consumer.health`. After an error that has ended the
        table, it is not live.
        """
        from kconsumer._internal.status import Health  # imported when used

        found: Health = self._consumer.health(max_lag, max_lag_seconds)
        state = self._state()
        if state == "failed":
            error = self._follower.failure
            return Health(False, (f"the table has ended with {type(error).__name__}: {error}",), live=False)
        if state == "not started":
            return Health(False, ("the table has not begun",), live=True)
        if state == "catching up":
            return replace(found, ok=False, reasons=(f"not ready: {self.status()}", *found.reasons))
        return found

    def _on_closed(self, notify: Callable[[], object]) -> None:
        """Call `notify` when the consumer is closed."""
        self._consumer._on_closed(notify)

    def _state(self) -> str:
        if self._closed:
            return "closed"
        if self._follower.failure is not None:
            return "failed"
        if not self._started:
            return "not started"
        return "following" if self._follower.ready else "catching up"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._topic} {self.status()}>"

    # --- checks and ending -------------------------------------------------------------------------------------------

    @property
    def _forked(self) -> bool:
        return self._forks != fork_count()

    def _check(self) -> None:
        """Raise the error that has ended the table, and errors for a table that is closed or of a parent process."""
        failure = self._follower.failure
        if self._forked:
            raise ForkedConsumerError("this table was made before the process forked; make a new one in the child")
        if self._closed:
            raise StateError(f"the table of topic {self._topic} is closed")
        if failure is not None:
            raise failure.with_traceback(self._follower.trace)

    def _not_ready(self, timeout_s: float) -> TimeoutError:
        problem = "" if self._follower.problem is None else f"; {self._follower.problem}"
        return TimeoutError(
            f"the table of topic {self._topic} is not ready after {timeout_s:g} s: {self.status()}{problem}"
        )

    def __del__(self) -> None:
        if self._closed or self._forked:
            return
        self._closed = True
        try:
            message = f"unclosed table of topic {self._topic}; {self._how_to_close}"
            self._warn(message, ResourceWarning, stacklevel=2, source=self)
        finally:  # a filter may turn the warning into an exception
            self._stop()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied; take its snapshot()")
