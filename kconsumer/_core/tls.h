/* Reads and writes of one TLS connection, without the GIL and without Python objects.
 *
 * `openssl.h` finds the functions of OpenSSL, and the SSL object of a connection. */
#ifndef KCONSUMER_TLS_H
#define KCONSUMER_TLS_H

#ifdef _WIN32
#include "windows_stubs.h"
#else

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>

#include "openssl_functions.h"

/* Why a call of OpenSSL did not transfer bytes. */
typedef struct {
    int error;          /* the result of SSL_get_error(); 0: bytes were transferred */
    int os_error;       /* errno, if `error` is KC_SSL_ERROR_SYSCALL */
    unsigned long code; /* OpenSSL's first error, which is the cause of later ones; 0: none */
} kc_tls_stop;

/* An SSL object and its lock. OpenSSL does not allow that two threads use an SSL object at the same time. */
typedef struct {
    pthread_mutex_t lock;
    int writers;      /* the number of threads that wait to write; atomic */
    kc_openssl *api;
    void *ssl;
    kc_tls_stop end;  /* why no more bytes can be read; `error` is 0 until then */
    int unreported;   /* a job has stopped early, and the next read by the caller will return the reason */
} kc_tls;

/* Returns a new kc_tls with its own reference to `ssl`, or NULL if there is no memory. */
static inline kc_tls *kc_tls_new(kc_openssl *api, void *ssl)
{
    kc_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL)
        return NULL;
    pthread_mutex_init(&tls->lock, NULL);
    api->SSL_up_ref(ssl);
    tls->api = api;
    tls->ssl = ssl;
    return tls;
}

static inline void kc_tls_free(kc_tls *tls)
{
    tls->api->SSL_free(tls->ssl);
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

/* Returns why a call has failed. Must be called on the same thread, directly after the call. */
static inline kc_tls_stop kc_tls_why(const kc_tls *tls, int result)
{
    kc_tls_stop stop = {0, errno, 0};
    stop.error = tls->api->SSL_get_error(tls->ssl, result);
    stop.code = tls->api->ERR_peek_error();
    tls->api->ERR_clear_error();
    return stop;
}

/* Call SSL_read_ex, unless the process exits. While the receiver's thread runs, exit() may be called on another thread,
 * where a handler of OpenSSL then frees what SSL_read_ex uses. kc_openssl_exit() is called before that handler. */
static inline int kc_tls_call_read(kc_tls *tls, void *data, size_t size, size_t *count, kc_tls_stop *stop)
{
    int result = 0;
    *stop = (kc_tls_stop) {KC_SSL_ERROR_SYSCALL, 0, 0};
    __atomic_add_fetch(&tls->api->readers, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&tls->api->exiting, __ATOMIC_SEQ_CST)) {
        tls->api->ERR_clear_error();
        result = tls->api->SSL_read_ex(tls->ssl, data, size, count);
        *stop = result == 1 ? (kc_tls_stop) {0, 0, 0} : kc_tls_why(tls, result);
    }
    __atomic_sub_fetch(&tls->api->readers, 1, __ATOMIC_SEQ_CST);
    return result == 1;
}

/* Prepare for large responses: let OpenSSL keep its buffer, which it otherwise allocates for each record. */
static inline void kc_tls_keep_buffer(kc_tls *tls)
{
    pthread_mutex_lock(&tls->lock);
    tls->api->SSL_ctrl(tls->ssl, KC_SSL_CTRL_CLEAR_MODE, KC_SSL_MODE_RELEASE_BUFFERS, NULL);
    pthread_mutex_unlock(&tls->lock);
}

/* Decrypt the next bytes, at most one TLS record. Returns their number. If it is 0, sets `*stop`. The caller holds the
 * lock. */
static inline size_t kc_tls_read_record(kc_tls *tls, void *data, size_t size, kc_tls_stop *stop)
{
    size_t count = 0;
    if (tls->end.error) {
        *stop = tls->end;
        return 0;
    }
    if (kc_tls_call_read(tls, data, size, &count, stop))
        return count;
    /* After a failure, OpenSSL would not return the same reason again. */
    if (stop->error != KC_SSL_ERROR_WANT_READ && stop->error != KC_SSL_ERROR_WANT_WRITE)
        tls->end = *stop;
    return 0;
}

/* Decrypt bytes until there are `enough`, until no more have arrived, or until another thread waits to write. Returns
 * their number. If there are not enough, sets `*stop`; its error is 0 if a thread waits to write. */
static inline size_t kc_tls_read(kc_tls *tls, unsigned char *data, size_t size, size_t enough, kc_tls_stop *stop)
{
    size_t filled = 0;
    while (__atomic_load_n(&tls->writers, __ATOMIC_ACQUIRE))
        sched_yield(); /* the lock is not fair: a loop of reads could keep a writer waiting */
    pthread_mutex_lock(&tls->lock);
    do
        filled += kc_tls_read_record(tls, data + filled, size - filled, stop);
    while (filled < enough && !stop->error && !__atomic_load_n(&tls->writers, __ATOMIC_RELAXED));
    pthread_mutex_unlock(&tls->lock);
    return filled;
}

/* Decrypt into `data` until `enough` bytes were decrypted, or no more have arrived. `enough` is at most `size`. Returns
 * the number of bytes, and sets `*stop` to why it stopped; `stop->error` is 0 if there were enough. */
static inline size_t kc_tls_read_many(kc_tls *tls, unsigned char *data, size_t size, size_t enough, kc_tls_stop *stop)
{
    size_t filled = 0;
    tls->unreported = 0;
    *stop = (kc_tls_stop) {0, 0, 0};
    while (filled < enough && !stop->error)
        filled += kc_tls_read(tls, data + filled, size - filled, enough - filled, stop);
    return filled;
}

/* Encrypt and send bytes. Returns how many were taken. If none were, sets `*stop`. */
static inline size_t kc_tls_write(kc_tls *tls, const void *data, size_t size, kc_tls_stop *stop)
{
    size_t count = 0;
    int result;
    __atomic_add_fetch(&tls->writers, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_lock(&tls->lock);
    __atomic_sub_fetch(&tls->writers, 1, __ATOMIC_ACQ_REL);
    tls->api->ERR_clear_error();
    result = tls->api->SSL_write_ex(tls->ssl, data, size, &count);
    *stop = (kc_tls_stop) {0, 0, 0};
    if (result != 1) {
        count = 0;
        *stop = kc_tls_why(tls, result);
    }
    pthread_mutex_unlock(&tls->lock);
    return count;
}

/* Returns whether a read may return something although no bytes are in the socket: decrypted bytes, or the reason
 * why there are no more. */
static inline int kc_tls_pending(kc_tls *tls)
{
    int found;
    pthread_mutex_lock(&tls->lock);
    found = tls->unreported || tls->end.error || tls->api->SSL_pending(tls->ssl) > 0;
    pthread_mutex_unlock(&tls->lock);
    return found;
}

/* Returns whether the caller must read next, as the read will return why there are no more bytes. A job would end at
 * once. */
static inline int kc_tls_ended(kc_tls *tls)
{
    int found;
    pthread_mutex_lock(&tls->lock);
    found = tls->unreported || tls->end.error;
    pthread_mutex_unlock(&tls->lock);
    return found;
}

#endif
#endif
