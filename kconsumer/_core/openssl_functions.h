/* The functions and constants of OpenSSL that are used. `openssl.h` finds the functions in the library that Python's
 * `ssl` has loaded, so no header of OpenSSL is needed. All are documented, and exist in OpenSSL 1.1.1 and 3. */
#ifndef KCONSUMER_OPENSSL_FUNCTIONS_H
#define KCONSUMER_OPENSSL_FUNCTIONS_H

#include <stddef.h>

/* Results of SSL_get_error(). */
#define KC_SSL_ERROR_SSL 1
#define KC_SSL_ERROR_WANT_READ 2
#define KC_SSL_ERROR_WANT_WRITE 3
#define KC_SSL_ERROR_SYSCALL 5
#define KC_SSL_ERROR_ZERO_RETURN 6

/* SSL_clear_mode() is a macro: SSL_ctrl() with this command. */
#define KC_SSL_CTRL_CLEAR_MODE 78
#define KC_SSL_MODE_RELEASE_BUFFERS 0x10

typedef void kc_ex_new(void *parent, void *pointer, void *data, int index, long argl, void *argp);

typedef struct {
    int readers; /* the number of threads in SSL_read_ex; atomic */
    int exiting; /* the process exits, so SSL_read_ex must not be called; atomic */
    int (*SSL_read_ex)(void *ssl, void *data, size_t size, size_t *count);
    int (*SSL_write_ex)(void *ssl, const void *data, size_t size, size_t *count);
    int (*SSL_get_error)(const void *ssl, int result);
    int (*SSL_get_fd)(const void *ssl);
    int (*SSL_pending)(const void *ssl);
    int (*SSL_up_ref)(void *ssl);
    void (*SSL_free)(void *ssl);
    long (*SSL_ctrl)(void *ssl, int command, long number, void *pointer);
    void (*ERR_clear_error)(void);
    unsigned long (*ERR_peek_error)(void);
    const char *(*ERR_reason_error_string)(unsigned long code);
    unsigned long (*OpenSSL_version_num)(void);
    int (*CRYPTO_get_ex_new_index)(
        int class_index, long argl, void *argp, kc_ex_new *new_func, void *dup_func, void *free_func);
} kc_openssl;

#endif
