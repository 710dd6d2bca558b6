"""Reads and writes over TLS through the OpenSSL that Python's `ssl` has loaded, with the GIL released.

Python's `ssl` makes connections: it loads certificates, does the handshake and verifies the broker. After that, a
TlsChannel uses the same SSL object. It decrypts many TLS records in one call, and `receiver.pyx` can decrypt on a
thread that never takes the GIL, which Python's `ssl` cannot do.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer


cdef extern from "openssl.h" nogil:
    kc_openssl kc_api
    const char* kc_openssl_load(const char* path)
    int kc_openssl_watch()
    unsigned long kc_openssl_version()
    const char* kc_reason(unsigned long code)
    void kc_expect_ssl()
    void* kc_found_ssl(int fd)


cdef bint loaded = False


def load(path, unsigned long version):
    """Find OpenSSL's functions in the library that contains Python's `_ssl`, and in those it is linked with.

    `path` is the file of `_ssl`, or None if it is a part of the interpreter. `version` is
    `ssl.OPENSSL_VERSION_NUMBER`. Returns None, or a text that says why they cannot be used.
    """
    global loaded
    cdef bytes encoded
    cdef const char* where = NULL
    cdef const char* missing
    if loaded:
        return None
    if path is not None:
        encoded = path.encode()
        where = encoded
    missing = kc_openssl_load(where)
    if missing != NULL:
        return f"{missing.decode()} cannot be found in this process"
    if kc_openssl_version() != version:
        return f"the process has another OpenSSL, too ({kc_openssl_version():#x})"
    if not kc_openssl_watch():
        return "OpenSSL does not report new connections"
    loaded = True
    return None


def expect_connection():
    """Prepare for `adopt_connection`. Must be called before the SSLSocket is connected."""
    kc_expect_ssl()


def adopt_connection(int fd):
    """Returns a TlsChannel for the SSLSocket with the descriptor `fd`, or None if its SSL object cannot be determined.

    This thread must have connected this SSLSocket, and made no other TLS connection, since `expect_connection`.
    """
    cdef void* ssl = kc_found_ssl(fd) if loaded else NULL
    cdef TlsChannel channel
    if ssl == NULL:
        return None
    channel = TlsChannel.__new__(TlsChannel)
    channel.tls = kc_tls_new(&kc_api, ssl)
    if channel.tls == NULL:
        raise MemoryError()
    return channel


def reason(unsigned long code):
    """Returns OpenSSL's text for an error code, or an empty string."""
    cdef const char* text = kc_reason(code)
    return "" if text == NULL else text.decode()


@cython.final
@cython.auto_pickle(False)
cdef class TlsChannel:
    """Reads and writes of one TLS connection. It keeps OpenSSL's SSL object alive, but not the socket.

    While the receiver reads, only `send` may be called.
    """

    def __init__(self):
        raise TypeError("channels are created by adopt_connection")

    def __dealloc__(self):
        if self.tls != NULL:
            kc_tls_free(self.tls)

    @property
    def pending(self):
        """Whether `recv_into` would return something although the socket has no bytes."""
        cdef kc_tls* tls = self.tls
        cdef int found
        with nogil:
            found = kc_tls_pending(tls)
        return bool(found)

    @property
    def ended(self):
        """Whether the next `recv_into` will return 0 and say in `stopped` why. A job of the receiver would end at
        once."""
        cdef kc_tls* tls = self.tls
        cdef int found
        with nogil:
            found = kc_tls_ended(tls)
        return bool(found)

    def recv_into(self, view, Py_ssize_t enough):
        """Decrypt records into `view` until `enough` bytes were decrypted, or no more have arrived. Returns the number
        of bytes. If there were not enough, `stopped` says why."""
        cdef kc_tls* tls = self.tls
        cdef kc_tls_stop stop
        cdef Py_buffer buffer
        cdef size_t count
        PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
        with nogil:
            count = kc_tls_read_many(
                tls, <unsigned char*> buffer.buf, <size_t> buffer.len, <size_t> min(max(enough, 0), buffer.len), &stop
            )
        PyBuffer_Release(&buffer)
        self.stop = stop
        return count

    def send(self, data):
        """Encrypt and send bytes. Returns how many were taken. If none were, `stopped` says why."""
        cdef kc_tls* tls = self.tls
        cdef kc_tls_stop stop
        cdef Py_buffer buffer
        cdef size_t count
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        with nogil:
            count = kc_tls_write(tls, buffer.buf, <size_t> buffer.len, &stop)
        PyBuffer_Release(&buffer)
        self.stop = stop
        return count

    @property
    def stopped(self):
        """Why the last call has stopped: (result of SSL_get_error, errno, OpenSSL's error code). The first is 0 if it
        has transferred all bytes."""
        return self.stop.error, self.stop.os_error, self.stop.code
