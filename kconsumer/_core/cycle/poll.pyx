"""A poll: what it checks before it waits, and how it waits.

`kconsumer/engine/` has the rest of these classes, and explains them. A PollState is the base of `Engine`, a DriverState
that of `Driver`, and a DispatcherState that of `Dispatcher`. Each poll of every consumer runs this code.
"""

from kconsumer._core.lock cimport ClientState, Clock, HeldHandlers, Section, Timer

from kconsumer._core.lock import EXPECTED as _EXPECTED
from kconsumer._core.lock import fork_count
from kconsumer.errors import StateError

cdef double MAX_STEP_MS = 3_600_000.0   # select() does not accept timeouts as long as a caller may give


cdef class Wait:
    """A wait of an operation: what ends it, and which work is allowed meanwhile. Any activity may end it early."""

    def __init__(self, double deadline, promise=None, bint joining=False, bint fetching=False, bint managers=True):
        self.deadline, self.promise = deadline, promise
        self.joining, self.fetching, self.managers = joining, fetching, managers


def run(operation, wait):
    """Drive an operation to its end. Returns its result. Calls `wait` with each `Wait` that the operation yields."""
    try:
        request = next(operation)
        while True:
            try:
                wait(request)
            except BaseException as error:
                request = operation.throw(error)
            else:
                request = next(operation)
    except StopIteration as end:
        return end.value
    except BaseException:
        # Either the operation raised, and has ended, or an asynchronous exception hit this call between two waits.
        operation.close()
        raise


cdef class DispatcherState:
    """The fields of a `Dispatcher`, and a step without requests that wait or have failed."""

    def __init__(self, client, Clock clock not None):
        self._client, self._clock = client, clock
        self.on_woken, self._waiting = [], []

    def step(self, double timeout_ms):
        """Run the network for at most `timeout_ms`, and call the handlers of the requests that ended.

        A request ends with a response or an error. Returns True if a request ended. If handlers raise a KafkaError,
        raises the first one after all handlers have run.
        """
        return self.run_step(timeout_ms)

    cdef bint run_step(self, double timeout_ms) except -1:
        cdef double now = self._clock.now()
        if self._waiting or self._failed:
            timeout_ms = self.begin_step(timeout_ms, now)
        return self.finish_step(self._client.poll(timeout_ms, now))

    def end_step(self, list ended not None):
        """Call the handlers of the requests that have ended, as the last part of a step.

        Returns and raises the same as `step`.
        """
        return self.finish_step(ended)

    cdef bint finish_step(self, list ended) except -1:
        if not ended and not self._waiting and not self._failed:
            return False
        return self._end_step(ended)


cdef class DriverState:
    """The fields of a `Driver`, and how it waits."""

    def __init__(self, ClientState parts not None, DispatcherState dispatcher not None):
        self._components, self._dispatcher, self._clock = parts, dispatcher, parts.clock
        self.idle_ended = -1
        self.wakeup_enabled = True

    @property
    def has_urgent_io(self):
        """True if a large response was received but not handled, or a fetch was created but not sent."""
        return self.urgent()

    cdef bint urgent(self) except -1:
        return self._fetches_created != self._fetches_flushed or self._receiver.completed > 0

    cdef double due(self) noexcept:
        """Returns the time (ms) at which poll() must poll the managers, although it only waits for records."""
        return self.idle_until if self.is_unchanged() else self.next_manager_poll

    cdef bint is_unchanged(self) noexcept:
        """Returns True if no request has ended since all managers were polled, and no other poll was requested."""
        return self.idle_ended == self._dispatcher.ended

    @property
    def managers_due(self):
        """The time (ms) at which a manager must be polled. It is 0 if a request has ended that may concern it."""
        return self.idle_until if self.is_unchanged() else 0.0

    def set_managers_due(self, double due):
        """Set the time (ms) at which a manager must be polled, unless a request ends before.

        Called after all managers were polled. If one of their requests has failed at once, they must be polled again.
        """
        self.idle_until, self.idle_ended = due, -1 if self._dispatcher._failed else self._dispatcher.ended

    def request_manager_poll(self):
        """Make the next poll() poll all managers."""
        self.next_manager_poll = 0.0
        self.idle_ended = -1

    cpdef int wait(self, Wait wait) except -1:
        """Block the calling thread until there is any activity, or until the deadline of the wait.

        A signal ends the wait. Its handler runs before this method returns. Raises StateError if a handler or a
        callback has closed the consumer.
        """
        cdef ClientState parts = self._components
        cdef HeldHandlers signals = parts.lock.signals
        cdef double timeout_ms = wait.deadline - self._clock.now()
        cdef bint holds
        if timeout_ms < 0:
            timeout_ms = 0.0
        if parts.closed:
            self._check_open()
        holds = signals.begin(parts.end_wait)
        try:
            if wait.managers:
                self._step(wait, timeout_ms)
            else:
                self.wait_for_activity(timeout_ms)
            signals.run_noted()
        finally:
            if holds:
                signals.end()
        if parts.closed:
            self._check_open()
        return 0

    cpdef bint wait_for_activity(self, double timeout_ms) except -1:
        """Wait up to `timeout_ms` for activity after the last step, without polling managers.

        Returns False if there was none. Here, the calling thread runs the network, and the end of a request counts.
        """
        cdef ClientState parts = self._components
        if parts.closed:
            self._check_open()
        turnstile = parts.turnstile
        if turnstile.taken:
            turnstile.wait()
        with Section(parts, parts.lock.signals):
            # Since the poll has looked, the heartbeat thread may have handled the response that it would wait for, or
            # received what `wakeup` has sent.
            if self.seen_steps != self.thread_steps:
                self.seen_steps, timeout_ms = self.thread_steps, 0.0
            return self._dispatcher.run_step(min(timeout_ms, MAX_STEP_MS))


cdef class PollState:
    """The fields of an `Engine` that each poll uses, and the parts of a poll that need no manager."""

    def __class_getitem__(cls, item):
        return cls

    def __init__(self, parts, DriverState driver not None, callbacks, nothing, double max_poll_interval_ms):
        self.components, self.driver, self.callbacks, self.nothing = parts, driver, callbacks, nothing
        self.lock, self._clock, self.delivery = parts.lock, parts.clock, parts.positions.delivery
        self.subscription, self.group = parts.subscription, parts.group
        self.fetch, self.buffer, self.collector = parts.fetch, parts.buffer, parts.collector
        self.max_poll_interval_ms = max_poll_interval_ms
        self._forks = fork_count()

    def poll(self, double timeout_ms, Py_ssize_t max_records, max_bytes=None):
        """Returns at most `max_records` records. Waits up to `timeout_ms` for the first record.

        The result is empty after the timeout. It is also empty if a position moved over control records and there were
        no other records. With `max_bytes`, the result ends with the record with which the serialized size of the
        records reaches this number of bytes. In this mode, deserializers do not run.

        The caller ends as `Consumer.poll` does: until then, the records do not count as consumed.
        """
        cdef Timer timer
        cdef Wait wait
        records = self.begin(timeout_ms, max_records, max_bytes)
        if records is not None:
            return records
        timer = Timer(self._clock, timeout_ms)
        wait = self.find_wait(timer)
        if wait is not None:
            records = self.take_after(wait, max_records, max_bytes)
            if records is not None:
                return records
        return run(self._poll_full(timer, max_records, max_bytes), self.driver.wait)

    def poll_without_wait(self, double timeout_ms, Py_ssize_t max_records, max_bytes=None):
        """Returns the result of `poll` if it needs no wait. Else returns None: `poll_operation` finds the result."""
        return self.begin(timeout_ms, max_records, max_bytes)

    cdef object begin(self, double timeout_ms, Py_ssize_t max_records, object max_bytes):
        cdef ClientState parts = self.components
        cdef DriverState driver = self.driver
        cdef double now
        cdef bint has_data
        if self.subscription.kind is self.nothing:
            driver._check_open()
            raise StateError("nothing to read from yet: subscribe() to topics or assign() partitions first")
        if self.delivery.open:
            self._take_over()
        parts.changes.now = now = self._clock.now()
        if driver.wakeup_requested:
            driver.raise_wakeup()
        if driver.urgent():
            driver.yield_to_network(timeout_ms)
        self.fetch.continue_until = now + self.max_poll_interval_ms
        has_data = self.buffer.has_data()
        self.quiet = now < (driver.next_manager_poll if has_data else driver.due()) and self.is_group_idle()
        if self.quiet:
            if self.group is not None:
                self.group.heartbeat.poll_started(now)
            if has_data:
                self.polls.quick_poll(now)
                records = self.collect(max_records, max_bytes)
                if records is not None:
                    return records
                self.quiet = False
            elif timeout_ms <= 0 and self._last_poll_empty and driver.idle() and not self.callbacks.commits_pending:
                self.polls.quick_poll(now)
                return self.collector._batch.EMPTY
        self.polls.poll_began(now)
        if self._closing and not self.callbacks.running:  # a signal handler polls inside close()
            return self.collector._batch.EMPTY
        return None

    def wait_in_flight(self, Timer timer not None):
        """Returns the wait for a fetch in flight with which this poll begins. Managers are not polled meanwhile.

        Returns None if a manager or a callback is due, or if the timer has expired: then the poll is a full one.
        """
        return self.find_wait(timer)

    def records_of_wait(self, Py_ssize_t max_records, max_bytes):
        """Returns the records that have arrived in the wait for a fetch in flight, or None: then the poll is a full
        one."""
        return self.take_waited(max_records, max_bytes)

    cdef Wait find_wait(self, Timer timer):
        if not self.quiet or timer.timeout_ms <= 0 or self.callbacks.commits_pending:
            return None
        return Wait(min(timer.deadline, self.driver.due()), None, False, False, False)

    cdef object take_after(self, Wait wait, Py_ssize_t max_records, object max_bytes):
        """Wait for a fetch in flight, and take its records. Signal handlers are deferred once for both."""
        cdef ClientState parts = self.components
        cdef HeldHandlers signals = self.lock.signals
        cdef bint holds = signals.begin(parts.end_wait)
        try:
            self.driver.wait(wait)
            records = self.take_waited(max_records, max_bytes)
            if holds:
                signals.end()
        except BaseException:   # also of a signal handler: records that are not returned are not consumed
            self.rollback_open()
            if holds:
                signals.end()
            raise
        return records

    cdef object take_waited(self, Py_ssize_t max_records, object max_bytes):
        cdef DriverState driver = self.driver
        if driver.wakeup_requested or not self.buffer.has_data():
            return None
        if not driver.is_unchanged() and not self.is_group_idle():  # the group was idle when this poll began
            return None
        self.polls.wait_ended(self._clock.now())
        return self.collect(max_records, max_bytes)

    cdef bint is_group_idle(self) except -1:
        return self.group is None or self.group.membership.idle or not self.subscription.is_group_managed

    def _group_idle(self):
        return self.is_group_idle()

    def _collect(self, Py_ssize_t max_records, max_bytes):
        return self.collect(max_records, max_bytes)

    cdef object collect(self, Py_ssize_t max_records, object max_bytes):
        """Take records from the buffer and send the next fetch. Returns the records, or None if there are none.

        Returns an empty batch if a position advanced without records. After any exception, the positions are moved
        back.
        """
        cdef ClientState parts = self.components
        cdef RecordTaker collector = self.collector
        cdef HeldHandlers signals = self.lock.signals
        cdef bint holds = signals.begin(parts.end_wait)
        try:
            # The same as a Section, without creating one, because every poll that returns records runs this code.
            self.lock.take(True, -1)
            try:
                parts.step.unfinished = True
                records = collector.take(max_records, max_bytes)
                self.delivery.version = self.lock.version
                if self.fetch.needs_poll and not parts.closed:
                    self.driver.flush_managers(self.fetch)
                parts.step.end()
            finally:
                if self.lock.is_owned():
                    self.lock.drop()
            if parts.user_calls.waiting:
                parts.user_calls.run()
            if holds:
                signals.end()
            if not records and not collector.positions_advanced:
                return None
            if self.interceptors is not None and records and not collector.collected and self.delivery.open:
                records = self._intercepted_outside(records)
        except BaseException as error:  # also of a signal handler: records that are not returned are not consumed
            if isinstance(error, _EXPECTED) or collector.out_of_memory:
                parts.step.end()
            self.rollback_open()
            if holds:
                signals.end()
            raise
        return records
