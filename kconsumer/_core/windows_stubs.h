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

/* tls.h and openssl.h */

typedef struct {
    int unused;
} kc_openssl;

typedef struct {
    int error;
    int os_error;
    unsigned long code;
} kc_tls_stop;

typedef struct {
    int unused;
} kc_tls;

static kc_openssl kc_api;

static inline const char *kc_openssl_load(const char *path)
{
    (void) path;
    return "SSL_read_ex";
}

static inline int kc_openssl_watch(void)
{
    return 0;
}

static inline unsigned long kc_openssl_version(void)
{
    return 0;
}

static inline const char *kc_reason(unsigned long code)
{
    (void) code;
    return NULL;
}

static inline void kc_expect_ssl(void)
{
}

static inline void *kc_found_ssl(int fd)
{
    (void) fd;
    return NULL;
}

static inline kc_tls *kc_tls_new(kc_openssl *api, void *ssl)
{
    (void) api, (void) ssl;
    return NULL;
}

static inline void kc_tls_free(kc_tls *tls)
{
    (void) tls;
}

static inline size_t kc_tls_read_many(kc_tls *tls, unsigned char *data, size_t size, size_t enough, kc_tls_stop *stop)
{
    (void) tls, (void) data, (void) size, (void) enough;
    *stop = (kc_tls_stop) {0, ENOTSUP, 0};
    return 0;
}

static inline size_t kc_tls_write(kc_tls *tls, const void *data, size_t size, kc_tls_stop *stop)
{
    (void) tls, (void) data, (void) size;
    *stop = (kc_tls_stop) {0, ENOTSUP, 0};
    return 0;
}

static inline int kc_tls_pending(kc_tls *tls)
{
    (void) tls;
    return 0;
}

static inline int kc_tls_ended(kc_tls *tls)
{
    (void) tls;
    return 1;
}

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

static inline kc_receiver *kc_receiver_new(void)
{
    errno = ENOTSUP;
    return NULL;
}

static inline void kc_receiver_free(kc_receiver *receiver, int alive)
{
    (void) receiver, (void) alive;
}

static inline int
kc_job_begin(kc_receiver *receiver, int fd, kc_tls *tls, unsigned char *memory, size_t size, int framed)
{
    (void) receiver, (void) fd, (void) tls, (void) memory, (void) size, (void) framed;
    return -1;
}

static inline int kc_job_completed(kc_receiver *receiver)
{
    (void) receiver;
    return -1;
}

static inline void kc_job_collect(kc_receiver *receiver, int number, kc_job *out)
{
    (void) receiver, (void) number;
    *out = (kc_job) {0};
}

static inline int kc_jobs_completed(const kc_receiver *receiver)
{
    (void) receiver;
    return 0;
}

static inline size_t kc_job_filled(const kc_receiver *receiver, int number)
{
    (void) receiver, (void) number;
    return 0;
}

static inline void kc_drain_pipe(int fd)
{
    (void) fd;
}

static inline int64_t kc_process_id(void)
{
    return _getpid();
}

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

static inline int kc_use_library(kc_codec codec, const char *library)
{
    (void) codec, (void) library;
    return 0;
}

static inline int kc_has_codec(kc_codec codec)
{
    (void) codec;
    return 0;
}

static inline ptrdiff_t kc_decompress_lz4(
    const unsigned char *packed, size_t size, unsigned char *memory, size_t capacity)
{
    (void) packed, (void) size, (void) memory, (void) capacity;
    return -1;
}

static inline kc_task *kc_task_new(void)
{
    return NULL;
}

static inline void kc_task_submit(kc_task *task)
{
    (void) task;
}

static inline void kc_decompressor_wake(kc_decompressor *decompressor)
{
    (void) decompressor;
}

static inline ptrdiff_t kc_task_end(kc_task *task, int wanted)
{
    (void) task, (void) wanted;
    return -1;
}

#endif
