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

#define KC_BIO_TYPE_SOCKET_LIKE 0x0500 /* BIO_TYPE_SOURCE_SINK | BIO_TYPE_DESCRIPTOR */
#define KC_BIO_READ_AGAIN 0x09         /* BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY */
#define KC_BIO_ALL_RETRIES 0x0f        /* BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY */
#define KC_BIO_CTRL_EOF 2
#define KC_BIO_C_SET_NBIO 102
#define KC_BIO_C_GET_FD 105

typedef void kc_ex_new(void *parent, void *pointer, void *data, int index, long argl, void *argp);

typedef struct {
    int readers;        /* the number of threads in SSL_read_ex; atomic */
    int exiting;        /* the process exits, so SSL_read_ex must not be called; atomic */
    void *ahead_method; /* the BIO_METHOD of tls_ahead.h; NULL: there was no memory for it */
    int (*SSL_read_ex)(void *ssl, void *data, size_t size, size_t *count);
    int (*SSL_write_ex)(void *ssl, const void *data, size_t size, size_t *count);
    int (*SSL_get_error)(const void *ssl, int result);
    int (*SSL_get_fd)(const void *ssl);
    int (*SSL_pending)(const void *ssl);
    int (*SSL_up_ref)(void *ssl);
    void (*SSL_free)(void *ssl);
    void (*SSL_set0_rbio)(void *ssl, void *bio);
    long (*SSL_ctrl)(void *ssl, int command, long number, void *pointer);
    void (*ERR_clear_error)(void);
    unsigned long (*ERR_peek_error)(void);
    const char *(*ERR_reason_error_string)(unsigned long code);
    unsigned long (*OpenSSL_version_num)(void);
    int (*CRYPTO_get_ex_new_index)(
        int class_index, long argl, void *argp, kc_ex_new *new_func, void *dup_func, void *free_func);
    int (*BIO_get_new_index)(void);
    void *(*BIO_meth_new)(int type, const char *name);
    int (*BIO_meth_set_read)(void *method, int (*read)(void *bio, char *data, int size));
    int (*BIO_meth_set_ctrl)(void *method, long (*control)(void *bio, int command, long number, void *pointer));
    int (*BIO_meth_set_destroy)(void *method, int (*destroy)(void *bio));
    void *(*BIO_new)(const void *method);
    void (*BIO_set_data)(void *bio, void *data);
    void *(*BIO_get_data)(void *bio);
    void (*BIO_set_flags)(void *bio, int flags);
    void (*BIO_clear_flags)(void *bio, int flags);
} kc_openssl;

#endif
