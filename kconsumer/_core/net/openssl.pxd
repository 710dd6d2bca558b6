# The TLS connections that the receiver reads.


cdef extern from "tls.h" nogil:
    ctypedef struct kc_openssl:
        pass
    ctypedef struct kc_tls_stop:
        int error
        int os_error
        unsigned long code
    ctypedef struct kc_tls:
        pass
    kc_tls* kc_tls_new(kc_openssl* api, void* ssl)
    void kc_tls_free(kc_tls* tls)
    size_t kc_tls_read_many(kc_tls* tls, unsigned char* data, size_t size, size_t enough, kc_tls_stop* stop)
    size_t kc_tls_write(kc_tls* tls, const void* data, size_t size, kc_tls_stop* stop)
    int kc_tls_pending(kc_tls* tls)
    int kc_tls_ended(kc_tls* tls)


cdef class TlsChannel:
    cdef kc_tls* tls       # owned; never NULL
    cdef kc_tls_stop stop  # why the last call has stopped
