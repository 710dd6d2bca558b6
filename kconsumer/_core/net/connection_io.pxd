# The ordinary I/O of connections. `kconsumer/net/connection.py`, `node.py` and `event_loop.py` have the rest of these
# classes.

from libc.stdint cimport int32_t

from kconsumer._core.lock cimport Waiting
from kconsumer._core.metrics cimport ConnectionEvents
from kconsumer._core.wire cimport Frame, FrameBuffer


cdef class InFlight:
    cdef readonly int32_t correlation_id
    cdef readonly object api
    cdef readonly int version
    cdef readonly double sent_at
    cdef readonly double deadline
    cdef readonly double timeout_ms
    cdef readonly object request            # None for the connection's own requests
    cdef readonly object handler            # called with the response frame, for the connection's own requests
    cdef readonly bint raw                  # a bare SASL token: neither the request nor its response has a header


cdef class RequestQueue:
    cdef public object name                 # for errors
    cdef public object state                # a ConnectionState
    cdef readonly object ready_state        # ConnectionState.READY
    cdef public object session              # a Session
    cdef public list entries                # the requests without a response, in order; also the connection's own
    cdef public list outgoing               # what is still to be written; `sent` removes what was
    cdef public int32_t next_correlation_id
    cdef public double next_deadline
    cdef readonly ConnectionIo owner        # the NodeConnection; None before `belong_to`
    cdef public object exchanged_by         # has handled a response, and must notify those who wait for it
    cdef public bint has_served_request     # the broker has responded to a request that is not the connection's own
    cdef public Py_ssize_t throttle_ms      # the throttle time of responses since `take_throttle`
    cdef public object _preamble            # the first bytes received, until they are checked
    cdef readonly FrameBuffer _frames
    cdef Py_ssize_t sent_in_part            # bytes of the first request in `outgoing` that `sent` has removed

    cpdef Py_ssize_t sent(self, Py_ssize_t count) except -1
    cpdef Py_ssize_t received(self, Py_ssize_t count, double now, list ended) except -1
    cdef int handle(self, list frames, double now, list ended) except -1
    cdef int handle_frame(self, Frame frame, double now, list ended) except -1
    cpdef object _exchanged(self, InFlight entry, bytes following, double now)
    cdef int advance_correlation_id(self) except -1
    cpdef bint may_continue(self, double now) except -1
    cpdef int _pop(self) except -1
    cpdef int _find_deadline(self) except -1


cdef class SocketIo:
    cdef public object _sock                # a `socket.socket`


cdef class ConnectionIo:
    cdef public object id                   # the connection id
    cdef public RequestQueue connection     # the protocol state, or None if there is no connection
    cdef public object transport            # the socket; None if there is no connection
    cdef public IoLoop _loop
    cdef public double last_used            # when a request was sent or bytes arrived last
    cdef public double progress_at          # when bytes of the present connection arrived last
    cdef public double throttled_until
    cdef public Py_ssize_t _parts                  # reads in a row that completed no response
    cdef public int _low_water              # bytes that the socket must have before it is reported, or a larger number

    cpdef bint may_send(self, double now) except -1
    cpdef int serve(self, int mask, double now) except -1
    cpdef int write(self, double now) except -1
    cpdef int read(self, double now, object received=*) except -1
    cpdef int _watch(self, RequestQueue connection, object transport) except -1
    cdef int write_queued(self, RequestQueue connection, object transport, double now) except -1
    cdef int after_exchange(self, RequestQueue connection, double now) except -1
    cdef Py_ssize_t receive(self, RequestQueue connection, object transport, double now) except -2
    cdef bint is_read_in_background(self) except -1


cdef class IoLoop:
    cdef public object nodes
    cdef public object waker
    cdef public object metrics              # the ConnectionMetrics, or None
    cdef public ConnectionEvents events     # those of `metrics`, or None
    cdef public object interest
    cdef public object background
    cdef public object resolver
    cdef public object background_receiver
    cdef public bint defers_writes          # True: connections do not write their requests, but wait for `flush`
    cdef public dict deferred               # the connections whose queued requests `flush` must write
    cdef public list ended                  # what `poll` returns next
    cdef public bint changed                # a connection became ready or was lost, so `poll` must return
    cdef public double next_timer           # when the next timeout passes, or earlier; never later
    cdef public object _clock
    cdef public double _max_wait_ms
    cdef object run_python                  # see `kconsumer/net/event_loop.py`
    cdef readonly Waiting _waiting          # see `wait_inside`
    cdef public double _entered_at          # when `poll` was called last

    cdef list select(self, double wait_ms)
    cdef int serve(self, list found, double now) except -1
    cdef bint must_return(self) except -1
    cdef bint any_task_completed(self) except -1
