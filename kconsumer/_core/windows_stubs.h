/* Windows: what receiver.h, tls.h, openssl.h and decompressor.h have there instead of their threads.
 *
 * The receiver cannot be created, so sockets are read by the calling thread. OpenSSL is not found, so TLS is read through
 * Python's `ssl`. No codec has functions, because the packages lz4 and zstandard contain modules there that export
 * nothing else, so their Python functions are called. Every caller handles these results on other platforms, too. */
#ifndef KCONSUMER_WINDOWS_STUBS_H
#define KCONSUMER_WINDOWS_STUBS_H

#include <errno.h>
#include <process.h>
#include <stddef.h>
#include <stdint.h>

/* Evaluates its arguments, so that no variable of a caller is without use. */
static inline void kc_ignore(int first, ...)
{
    (void) first;
}

/* tls.h and openssl.h */

typedef struct {
    int error;
    int os_error;
    unsigned long code;
} kc_tls_stop;

typedef struct {
    int unused;
} kc_openssl, kc_tls;

static kc_openssl kc_api;

#define kc_openssl_load(path) (kc_ignore(0, path), "SSL_read_ex")
#define kc_openssl_watch() 0
#define kc_openssl_version() 0ul
#define kc_reason(code) (kc_ignore(0, code), NULL)
#define kc_expect_ssl() kc_ignore(0)
#define kc_found_ssl(fd) (kc_ignore(0, fd), NULL)
#define kc_tls_new(api, ssl) ((void) (api), (kc_tls *) NULL)
#define kc_tls_free(tls) kc_ignore(0, tls)
#define kc_tls_read_many(tls, data, size, enough, stop) \
    (kc_ignore(0, tls, data, size, enough), *(stop) = (kc_tls_stop) {0, ENOTSUP, 0}, (size_t) 0)
#define kc_tls_write(tls, data, size, stop) \
    (kc_ignore(0, tls, data, size), *(stop) = (kc_tls_stop) {0, ENOTSUP, 0}, (size_t) 0)
#define kc_tls_pending(tls) (kc_ignore(0, tls), 0)
#define kc_tls_ended(tls) (kc_ignore(0, tls), 1)

/* receiver.h */

enum { KC_JOBS = 1 };

typedef struct {
    int error;
    size_t filled;
    unsigned char prefix[4];
    size_t prefixed;
} kc_job;

typedef struct {
    int completed_pipe[2];
} kc_receiver;

#define kc_receiver_new() (errno = ENOTSUP, (kc_receiver *) NULL)
#define kc_receiver_free(receiver, alive) kc_ignore(0, receiver, alive)
#define kc_job_begin(receiver, fd, tls, memory, size, framed) \
    (kc_ignore(0, receiver, fd, tls, memory, size, framed), -1)
#define kc_job_completed(receiver) (kc_ignore(0, receiver), -1)
#define kc_job_collect(receiver, number, out) (kc_ignore(0, receiver, number), *(out) = (kc_job) {0})
#define kc_jobs_completed(receiver) (kc_ignore(0, receiver), 0)
#define kc_job_filled(receiver, number) (kc_ignore(0, receiver, number), (size_t) 0)
#define kc_drain_pipe(fd) kc_ignore(0, fd)
#define kc_process_id() ((int64_t) _getpid())

/* decompressor.h */

typedef enum { KC_LZ4, KC_ZSTD } kc_codec;

typedef struct {
    int unused;
} kc_decompressor;

typedef struct {
    kc_decompressor *owner;
    const unsigned char *packed;
    size_t size;
    unsigned char *memory;
    size_t capacity;
} kc_task;

#define kc_use_library(codec, library) (kc_ignore(0, codec, library), 0)
#define kc_has_codec(codec) (kc_ignore(0, codec), 0)
#define kc_decompress_lz4(packed, size, memory, capacity) \
    (kc_ignore(0, packed, size, memory, capacity), (ptrdiff_t) -1)
#define kc_task_new() ((kc_task *) NULL)
#define kc_task_submit(task) kc_ignore(0, task)
#define kc_decompressor_wake(decompressor) kc_ignore(0, decompressor)
#define kc_task_end(task, wanted) (kc_ignore(0, task, wanted), (ptrdiff_t) -1)

#endif
