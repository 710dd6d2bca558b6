/* Finds the OpenSSL that Python's `ssl` has loaded, and the SSL object of a new SSLSocket.
 *
 * The functions are found in the loaded library at run time, so nothing is linked, and no header of OpenSSL is needed.
 * Python has no function that returns the SSL object of an SSLSocket. But OpenSSL calls `kc_note_created` for each new
 * SSL object, on the thread that creates it. If exactly one was created on this thread while an SSLSocket was made, it
 * belongs to this SSLSocket. */
#ifndef KCONSUMER_OPENSSL_H
#define KCONSUMER_OPENSSL_H

#ifdef _WIN32
#include "windows_stubs.h"
#else

#include <dlfcn.h>
#include <time.h>

#include "tls.h"

#define KC_EX_INDEX_SSL 0 /* CRYPTO_EX_INDEX_SSL */

static kc_openssl kc_api;
static __thread void *kc_created_ssl; /* the SSL object that was created last on this thread */
static __thread int kc_created_count; /* the number of SSL objects created since kc_expect_ssl() */

static void kc_note_created(void *parent, void *pointer, void *data, int index, long argl, void *argp)
{
    (void) pointer, (void) data, (void) index, (void) argl, (void) argp;
    kc_created_ssl = parent;
    kc_created_count++;
}

/* Find the functions in the shared library `path` and in those that it is linked with; NULL: in this process. The
 * library must be loaded already. Returns NULL, or the name of what is missing. */
static inline const char *kc_openssl_load(const char *path)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL)
        return "_ssl";
#define KC_FIND(name) \
    if ((*(void **) &kc_api.name = dlsym(library, #name)) == NULL) \
        return #name;
    KC_FIND(SSL_read_ex)
    KC_FIND(SSL_write_ex)
    KC_FIND(SSL_get_error)
    KC_FIND(SSL_get_fd)
    KC_FIND(SSL_pending)
    KC_FIND(SSL_up_ref)
    KC_FIND(SSL_free)
    KC_FIND(SSL_ctrl)
    KC_FIND(ERR_clear_error)
    KC_FIND(ERR_peek_error)
    KC_FIND(ERR_reason_error_string)
    KC_FIND(OpenSSL_version_num)
    KC_FIND(CRYPTO_get_ex_new_index)
#undef KC_FIND
    return NULL;
}

/* Let no thread call SSL_read_ex any more, and wait for those that do, at most a second. exit() calls this before
 * OpenSSL's own handler, which was registered first. */
static void kc_openssl_exit(void)
{
    const struct timespec pause = {0, 1000000L};
    int waited_ms;
    __atomic_store_n(&kc_api.exiting, 1, __ATOMIC_SEQ_CST);
    for (waited_ms = 0; waited_ms < 1000 && __atomic_load_n(&kc_api.readers, __ATOMIC_SEQ_CST); waited_ms++)
        nanosleep(&pause, NULL);
}

/* In a forked child process, the threads that were reading do not exist. */
static void kc_openssl_forked(void)
{
    kc_api.readers = 0;
}

/* Let OpenSSL call kc_note_created. Returns 0 if that fails. */
static inline int kc_openssl_watch(void)
{
    if (atexit(kc_openssl_exit) || pthread_atfork(NULL, NULL, kc_openssl_forked))
        return 0;
    return kc_api.CRYPTO_get_ex_new_index(KC_EX_INDEX_SSL, 0, NULL, kc_note_created, NULL, NULL) >= 0;
}

static inline unsigned long kc_openssl_version(void)
{
    return kc_api.OpenSSL_version_num();
}

static inline const char *kc_reason(unsigned long code)
{
    return kc_api.ERR_reason_error_string(code);
}

static inline void kc_expect_ssl(void)
{
    kc_created_ssl = NULL;
    kc_created_count = 0;
}

/* Returns the only SSL object that was created on this thread since kc_expect_ssl(), or NULL. */
static inline void *kc_found_ssl(int fd)
{
    if (kc_created_count != 1 || kc_api.SSL_get_fd(kc_created_ssl) != fd)
        return NULL;
    return kc_created_ssl;
}

#endif
#endif
