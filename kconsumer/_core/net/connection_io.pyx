"""The ordinary I/O of connections: waits for sockets, receives responses, and writes requests.

`kconsumer/net/` has the rest of these classes, and explains them. A RequestQueue is the base of `Connection`, a
ConnectionIo that of `NodeConnection`, and an IoLoop that of `ConnectionLoop`. Each has the fields that every exchange
of a request and a response uses, and what happens then.
"""

cimport cython
from libc.math cimport INFINITY
from libc.stdint cimport INT32_MAX, int32_t

from kconsumer._core.wire cimport Frame, kc_load_be32

from kconsumer.errors import KafkaError, ProtocolError

LOGIN_CORRELATION_IDS = INT32_MAX - 7   # the first of the last eight, which Kafka's clients reserve for SASL
MAX_IN_FLIGHT = 100
MAX_LOW_WATER_BYTES = 1 << 15  # with more, the broker's and the client's buffers could be full before the client reads

SLOW_MS = 8_000.0
"""An attempt to connect, or a request that waits longer than this (ms) for the broker, is logged as a warning."""

MIN_BACKGROUND_BYTES = 1 << 18
"""If more bytes than this of a frame are missing, they are received in the background.

The sockets' buffers hold about as many: the broker's send buffer is 100 KiB by default, which the system doubles. When
the buffers are full, the broker waits until the client receives.
"""

WOULD_BLOCK = -1  # returned by `recv_into` when there are no bytes now

cdef enum:
    READ = 1      # selectors.EVENT_READ
    WRITE = 2     # selectors.EVENT_WRITE
    NO_BYTES = -1
    BACKGROUND_BYTES = 1 << 18

cdef int32_t first_login_id = LOGIN_CORRELATION_IDS
cdef double slow_ms = SLOW_MS
cdef Py_ssize_t max_in_flight = MAX_IN_FLIGHT
cdef int max_low_water = MAX_LOW_WATER_BYTES


@cython.final
cdef class InFlight:
    """A request that was queued or sent, and has no response yet."""

    def __init__(
        self,
        int32_t correlation_id,
        api,
        int version,
        double sent_at,
        double deadline,
        request=None,
        handler=None,
        bint raw=False,
    ):
        self.correlation_id, self.api, self.version = correlation_id, api, version
        self.sent_at, self.deadline, self.timeout_ms = sent_at, deadline, deadline - sent_at
        self.request, self.handler, self.raw = request, handler, raw

    def restart_timeout(self, double since):
        """Let the timeout count from `since` (ms), because the response is still arriving."""
        self.deadline = since + self.timeout_ms

    def __repr__(self):
        return f"<InFlight {self.api.name} v{self.version} #{self.correlation_id}>"


cdef class RequestQueue:
    """The requests of one connection that have no response yet, and the bytes that are still to be written."""

    def __init__(self, name, state, ready_state, session, FrameBuffer frames not None):
        self.name, self.state, self.ready_state, self.session, self._frames = name, state, ready_state, session, frames
        self._preamble = bytearray()
        self.entries, self.outgoing = [], []
        self.next_deadline = INFINITY

    # --- outgoing ---

    cpdef Py_ssize_t sent(self, Py_ssize_t count) except -1:
        """Remove `count` bytes from the first request in `outgoing`, because the transport has taken them.

        If no bytes of this request are left, returns the size of the whole request, else 0.
        """
        first = self.outgoing[0]
        cdef Py_ssize_t size = len(first)
        if count < size:
            self.outgoing[0] = memoryview(first)[count:]
            self.sent_in_part += count
            return 0
        del self.outgoing[0]
        size += self.sent_in_part
        self.sent_in_part = 0
        return size

    def _advance_correlation_id(self):
        self.advance_correlation_id()

    cdef int advance_correlation_id(self) except -1:
        cdef int32_t following = self.next_correlation_id + 1
        self.next_correlation_id = following if following < first_login_id else 0
        return 0

    # --- incoming ---

    cpdef Py_ssize_t received(self, Py_ssize_t count, double now, list ended) except -1:
        """Process `count` bytes that were received into `recv_view()`. Returns the number of responses that they
        complete.

        Appends the completed requests and their replies to `ended`. Responses to the connection's own requests are
        counted, too, but passed to their handlers instead. Raises ProtocolError for bytes that are no valid response.
        Raises another KafkaError if a response requires that the connection is closed.
        """
        cdef list frames
        if self._preamble is not None:
            self._check_preamble(self._preamble, count)
        try:
            frames = self._frames.received(count)
        except ProtocolError as error:
            raise self._too_large(error) from error
        self.handle(frames, now, ended)
        return len(frames)

    def received_prefetched(self, bytes prefix not None, Py_ssize_t count, double now, list ended not None):
        """Process the first bytes of a frame, which the background receiver has received.

        `prefix` contains the received bytes of the size prefix. The first `count` bytes of the frame itself are in
        `prefetch_view()`. Completed requests are appended as in `received`. Returns the number of completed responses.
        Raises the errors of `received`.
        """
        cdef list frames
        try:
            frames = self._frames.received_prefetched(prefix, count)
        except ProtocolError as error:
            raise self._too_large(error) from error
        self.handle(frames, now, ended)
        return len(frames)

    cdef int handle(self, list frames, double now, list ended) except -1:
        cdef Frame frame
        for frame in frames:
            self.handle_frame(frame, now, ended)
        return 0

    cdef int handle_frame(self, Frame frame, double now, list ended) except -1:
        """Process a frame, which is the response to the oldest request in flight, and remove this request.

        If the request has a handler, passes the frame to the handler. If it has an exchange, which handles ordinary
        responses, passes the frame to the exchange. Otherwise decodes the frame and appends the request and its reply
        to `ended`. Raises ProtocolError if the frame does not belong to the request or cannot be decoded.
        """
        cdef InFlight entry
        if not self.entries:
            raise ProtocolError(f"{self.name} sent {frame.size} bytes that belong to no request")
        entry = self.entries[0]
        if not entry.raw and (frame.size < 4 or <int32_t> kc_load_be32(frame.data) != entry.correlation_id):
            found = <int32_t> kc_load_be32(frame.data) if frame.size >= 4 else None
            raise ProtocolError(
                f"{self.name} sent response #{found} where #{entry.correlation_id} ({entry.api.name}) was due"
            )
        if entry.request is None:
            self._pop()
            entry.handler(entry, frame, now)
            return 0
        exchange = entry.request.exchange
        if exchange is not None:
            following = exchange.receive(self, entry, frame, now)
            if following is not None:
                self._exchanged(entry, following, now)
                return 0
        self._handle_response(entry, frame, now, ended)
        return 0

    cpdef object _exchanged(self, InFlight entry, bytes following, double now):
        """End a request whose response its exchange has handled. If `following` is not empty, send it next."""
        del self.entries[0]
        self.has_served_request, self.exchanged_by = True, entry.request.exchange
        if self.owner is not None and self.owner._loop.events is not None:
            self.owner._loop.events.exchanged(self.owner.id, now - entry.sent_at, now)
        if following:
            entry.correlation_id, entry.sent_at, entry.deadline = self.next_correlation_id, now, now + entry.timeout_ms
            self.advance_correlation_id()
            self.entries.append(entry)
            self.outgoing.append(following)
        if following and len(self.entries) == 1 and self.session.authenticator is None:
            self.next_deadline = entry.deadline
        else:
            self._find_deadline()

    def belong_to(self, ConnectionIo owner):
        """Set the NodeConnection of this connection."""
        self.owner = owner

    cpdef bint may_continue(self, double now) except -1:
        """Returns True if the next request of an exchange may be sent now."""
        return (
            self.owner is not None
            and not self.outgoing
            and now < <double> self.session.renew_at
            and self.owner.may_send(now)
        )

    cpdef int _pop(self) except -1:
        """Remove the oldest request in flight, and update `next_deadline`."""
        cdef double deadline = (<InFlight> self.entries[0]).deadline
        del self.entries[0]
        if deadline <= self.next_deadline:
            if self.entries or self.session.authenticator is not None:
                self._find_deadline()
            else:
                self.next_deadline = INFINITY
        return 0

    cpdef int _find_deadline(self) except -1:
        """Set `next_deadline` to the earliest deadline of a request, or of the authentication."""
        cdef double earliest = INFINITY
        cdef InFlight entry
        authenticator = self.session.authenticator
        if authenticator is not None:
            earliest = authenticator.deadline
        for entry in self.entries:
            if entry.deadline < earliest:
                earliest = entry.deadline
        self.next_deadline = earliest
        return 0


cdef class SocketIo:
    """Receives from and sends to a socket that never blocks. It is the base of `TcpTransport`."""

    def recv_into(self, view not None):
        """Receive into `view` without a copy and with the GIL released. Returns the number of bytes, 0 if the peer has
        closed the connection, or WOULD_BLOCK if there are no bytes now."""
        try:
            return self._sock.recv_into(view)
        except BlockingIOError:
            return NO_BYTES

    def send(self, data not None):
        """Send as many bytes as fit into the kernel's buffer. Returns their number."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0


cdef class ConnectionIo:
    """Reads and writes the socket of one connection id. All times are in ms."""

    def __init__(self, connection_id, IoLoop loop not None):
        self.id, self._loop = connection_id, loop
        self.progress_at = -INFINITY
        self._low_water = 1

    # --- requests ---

    cpdef bint may_send(self, double now) except -1:
        """Returns whether a request may be sent now.

        This is so if the connection is ready, is not throttled, does not wait for new credentials, and has fewer than
        MAX_IN_FLIGHT requests in flight.
        """
        cdef RequestQueue connection = self.connection
        return (
            connection is not None
            and connection.state is connection.ready_state
            and self.throttled_until <= now
            and now < <double> connection.session.blocked_since
            and len(connection.entries) < max_in_flight
        )

    def send(self, request, double now):
        """Queue a request. Unless writes are deferred, also write as much as the socket takes.

        Must be called only if `may_send` returns True. Raises UnsupportedVersionError if the broker and this client
        have no version of the request in common, and ProtocolError if it cannot be encoded.
        """
        self.connection.send(request, now)
        self.last_used = now
        if self._loop.defers_writes:
            self._loop.deferred[self] = None
        else:
            self.write(now)

    # --- events ---

    cpdef int serve(self, int mask, double now) except -1:
        """Handle the events that the selector has reported. Writes first and then reads, unless the write has ended the
        connection."""
        cdef RequestQueue connection = self.connection
        transport = self.transport
        if connection is None or transport is None:
            return 0
        if connection.state is not connection.ready_state and self._continue_connecting(now):
            return 0
        cdef bint crossed = transport.crossed
        if mask & WRITE or crossed:
            self.write(now)
        # `write` may have handed the socket to the background receiver, which must be its only reader.
        if (mask & READ or crossed) and self.connection is connection and not self.is_read_in_background():
            self.read(now)
        if (crossed or transport.crossed) and self.connection is connection:
            self._watch(connection, transport)
        return 0

    cdef bint is_read_in_background(self) except -1:
        return self in <dict> self._loop.background_receiver.jobs

    @property
    def receiving(self):
        """Returns whether a response has arrived in part, and the background receiver does not read the rest."""
        return self.connection is not None and self.connection.receiving and not self.is_read_in_background()

    cpdef int _watch(self, RequestQueue connection, object transport) except -1:
        """Let the selector report when the socket can be read, unless the background receiver reads it, and when it can
        be written, if requests are queued."""
        if transport.crossed:
            self._watch_one(transport)
            return 0
        cdef int events = 0 if self.is_read_in_background() else READ
        if connection.outgoing:
            events |= WRITE
        interest = self._loop.interest
        if events != (<dict> interest.events).get(transport):
            interest.set_events(transport, events, self)
        return 0

    # --- writing ---

    cpdef int write(self, double now) except -1:
        """Write queued requests until the socket takes no more bytes. If some are left, the selector reports when the
        socket is writable. Must be called whenever a request has been queued.

        If the next response is expected to be large, starts to receive it in the background. It then arrives even while
        the calling thread processes records and does not call `poll`.
        """
        cdef RequestQueue connection = self.connection
        cdef double due
        transport = self.transport
        if connection is None or transport is None:
            return 0
        due = min(now + slow_ms, connection.next_deadline)
        if due < self._loop.next_timer:
            self._loop.next_timer = due
        try:
            self.write_queued(connection, transport, now)
            if connection.entries and connection.state is connection.ready_state and not self.is_read_in_background():
                view = connection._frames.prefetch_view(BACKGROUND_BYTES)
                if view is not None and not self._loop.background_receiver.start(self, view, framed=True):
                    connection.cancel_prefetch()
        except (OSError, KafkaError) as error:
            self._io_failed(connection, error, now)
            return 0
        except BaseException as error:
            self._interrupted(connection, error, now)
            raise
        self._watch(connection, transport)
        return 0

    cdef int write_queued(self, RequestQueue connection, object transport, double now) except -1:
        """Write until the socket takes no more bytes."""
        cdef Py_ssize_t taken, request_size
        while connection.outgoing:
            taken = transport.send(connection.outgoing[0])
            if not taken:
                break
            request_size = connection.sent(taken)
            if self._loop.events is not None:
                self._loop.events.sent(self.id, taken, request_size, now)
            if not request_size:
                break
        return 0

    # --- reading ---

    cpdef int read(self, double now, object received=None) except -1:
        """Process the bytes in the socket, or `received` if the background receiver has read them.

        Ends the connection after an error or a disconnect.
        """
        cdef RequestQueue connection = self.connection
        cdef Py_ssize_t count
        transport = self.transport
        if connection is None or transport is None:
            return 0
        before = connection.state
        self.last_used = now
        try:
            if received is None:
                count = self.receive(connection, transport, now)
            else:
                count = self._take_received(connection, transport, received, now)
        except (OSError, KafkaError) as error:
            self._io_failed(connection, error, now)
            return 0
        except BaseException as error:
            self._interrupted(connection, error, now)
            raise
        if count == 0:
            self.disconnect(self._explain_close(connection), now)
            return 0
        if connection.exchanged_by is not None:
            self.after_exchange(connection, now)
        if connection.throttle_ms:  # nothing is sent for this time (KIP-219)
            self.throttled_until = max(self.throttled_until, now + <double> connection.take_throttle())
        if before is not connection.ready_state:
            self._after_handshake_data(connection, before, now)
        return 0

    cdef int after_exchange(self, RequestQueue connection, double now) except -1:
        """Send the next request of an exchange, and then notify those who wait for what it has received."""
        exchange = connection.exchanged_by
        connection.exchanged_by = None
        if connection.outgoing and self.connection is connection:
            self.write(now)
        exchange.notify()
        return 0

    cdef Py_ssize_t receive(self, RequestQueue connection, object transport, double now) except -2:
        """Read until the socket is empty or no request is in flight. The rest of a large frame is left to the
        background receiver, if it can read the socket.

        Returns the number of bytes of the last read, which is 0 if the broker has closed the connection. Returns
        NO_BYTES if the socket has no more bytes, or if the background receiver reads the rest. Raises OSError if the
        socket fails, and a KafkaError if the broker has sent invalid bytes or an error that ends the connection.
        """
        cdef IoLoop loop = self._loop
        cdef Py_ssize_t room, count, completed
        while True:
            view = connection._frames.recv_view()
            room = len(view)
            if room > BACKGROUND_BYTES and loop.background_receiver.start(self, view, framed=False):
                self._watch(connection, transport)
                return NO_BYTES
            count = transport.recv_into(view)
            if count > 0:
                self.progress_at = now
                completed = connection.received(count, now, loop.ended)
                self._parts = 0 if completed else self._parts + 1
                if loop.events is not None:
                    loop.events.received(self.id, count, completed)
                # If the view is full, the socket may have more bytes. Another read costs less than another select. But
                # if every request has its response, no more bytes are expected.
                if (count == room and connection.entries) or (not transport.plain and transport.pending):
                    continue
            if self._parts > 1 or self._low_water > 1:
                self._wait_for_rest(connection, transport)
            return count

    def _wait_for_rest(self, RequestQueue connection, transport):
        """Let the selector report the socket when the rest of an incomplete response has arrived.

        A broker writes the records of each partition separately, and the fields before, between and after them. When it
        is busy, most responses arrive in one or two parts. Two changes of the socket then cost more here than they
        save, so they are made from the second part on.
        """
        cdef Py_ssize_t missing = connection._frames.missing if self._parts > 1 else 0
        self._set_low_water(transport, <int> min(missing, <Py_ssize_t> max_low_water) if missing else 1)

    def _set_low_water(self, transport, int count):
        if count != self._low_water:
            self._low_water = max(count, self._low_water)  # the larger one if a signal handler interrupts the call
            transport.set_low_water(count)
            self._low_water = count


cdef list select_events(object selector, double wait_ms):
    """Wait at most `wait_ms` for events. Returns (SelectorKey, events) of each."""
    if isinstance(selector, EpollSelector):
        return (<EpollSelector> selector).wait(wait_ms)
    return selector.select(None if wait_ms == INFINITY else wait_ms / 1000)


cdef class IoLoop:
    """Waits for the sockets of connections, and lets each connection do its I/O."""

    def __init__(
        self, clock, nodes, waker, metrics, interest, background, resolver, background_receiver, run_python
    ):
        self._clock, self.nodes, self.waker, self.metrics, self.interest = clock, nodes, waker, metrics, interest
        self.background, self.resolver, self.background_receiver = background, resolver, background_receiver
        self.events = None if metrics is None else metrics.events
        self.deferred, self.ended = {}, []
        self.next_timer = self._max_wait_ms = INFINITY
        self.run_python = run_python

    def poll(self, double timeout_ms, double now):
        """Do I/O until a request ends, a connection is ready or lost, the waker is set, or the timeout passes.

        Returns each request that has ended, with its reply, which has a message or an error.
        """
        cdef double deadline = now + timeout_ms, wait_ms, waited_ms = 0.0, busy_ms = 0.0, woken
        cdef Py_ssize_t selects = 0
        cdef list ended, found
        if self.interest.selector is None:
            self.open()
        self._entered_at = now
        if self.deferred:
            self.flush(now)
        while True:
            wait_ms = min(deadline, self.next_timer) - now
            if wait_ms < 0 or self.must_return() or self.any_task_completed():
                wait_ms = 0.0
            elif wait_ms > self._max_wait_ms:
                wait_ms = self._max_wait_ms
            found = self.select(wait_ms)
            woken = self._clock.now()
            self.serve(found, woken)
            if found or wait_ms < self._max_wait_ms:  # the parts of one wait count as one
                selects += 1
            waited_ms += woken - now
            now = <double> self._clock.now() if found else woken
            busy_ms += now - woken
            if self.any_task_completed():
                self._continue_after_tasks(now)
            if now >= self.next_timer:
                self._run_timers(now)
            if self.must_return() or now >= deadline:
                break
        self.changed = False
        if self.waker.is_set:
            self.waker.clear()
        ended, self.ended = self.ended, []
        if self.events is not None:
            for _, reply in ended:
                self.events.completed(reply)
            self.events.polled(selects, waited_ms, busy_ms, now)
        return ended

    cdef list select(self, double wait_ms):
        """Wait at most `wait_ms` for the sockets. Returns what the selector has found."""
        # The selector may have been replaced in the last round.
        cdef list found
        selector = self.interest.selector or self.open()
        if wait_ms <= 0 or self._waiting is None:
            return select_events(selector, wait_ms)
        self._waiting.begin()
        try:
            found = select_events(selector, wait_ms)
            if not found:
                self.run_python()
        except BaseException:
            self._waiting.end(False)
            raise
        self._waiting.end(True)
        return found

    cdef int serve(self, list found, double now) except -1:
        """Let connections handle their events."""
        for key, mask in found:
            data = key.data
            if data is None:
                self.waker.drain()
            elif isinstance(data, ConnectionIo):
                (<ConnectionIo> data).serve(mask, now)
            else:
                data.serve(mask, now)
        return 0

    cdef bint must_return(self) except -1:
        return bool(self.ended) or self.changed or self.waker.is_set

    cdef bint any_task_completed(self) except -1:
        return self.resolver.completed_tasks or self.background.completed_tasks

    def flush(self, double now):
        """Write the requests whose writes were deferred."""
        while self.deferred:
            node, _ = self.deferred.popitem()
            (<ConnectionIo?> node).write(now)

    def run_timers_by(self, double due):
        """Handle timeouts at `due` (ms), or earlier."""
        self.next_timer = min(self.next_timer, due)

    def wait_inside(self, Waiting waiting):
        """Let `poll` release the lock of its caller while it waits."""
        self._waiting = waiting

    def connection_changed(self):
        """Let `poll` return, because a connection is ready or lost, or an exchange has changed the state."""
        self.changed = True
