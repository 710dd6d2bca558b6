/* Reads ahead of OpenSSL, on a connection that receives large responses.
 *
 * OpenSSL reads each TLS record with two system calls: one for the five bytes of the header, and one for the rest. This
 * source of bytes (a BIO) uses one call of readv() instead. It receives what OpenSSL has requested and, into its own
 * memory, the first bytes of the following records, which it returns when OpenSSL requests them. OpenSSL has a
 * read-ahead, too, but moves the rest of its buffer after each record. */
#ifndef KCONSUMER_TLS_AHEAD_H
#define KCONSUMER_TLS_AHEAD_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "openssl_functions.h"

/* A broker sends 32 KiB of a response as two large TLS records and a small one. There is room for the small one and the
 * headers before and after it. */
#define KC_AHEAD_BYTES 512

typedef struct {
    const kc_openssl *api;
    int fd;
    int ended;         /* the peer has closed the connection */
    size_t start, end; /* the part of `bytes` that OpenSSL has not taken yet */
    unsigned char bytes[KC_AHEAD_BYTES];
} kc_tls_ahead;

/* Returns the number of bytes that OpenSSL has not taken yet. It takes all of them before it reports that it needs more
 * from the socket. */
static inline size_t kc_ahead_left(const kc_tls_ahead *ahead)
{
    return ahead->end - ahead->start;
}

/* Receive at most `size` bytes into `data`, and bytes that follow them into `ahead`. Returns the number of bytes in
 * `data`; 0 if the peer has closed the connection, and -1 with errno after an error. */
static inline int kc_ahead_receive(kc_tls_ahead *ahead, char *data, size_t size)
{
    struct iovec parts[2] = {{data, size}, {ahead->bytes, sizeof ahead->bytes}};
    ssize_t count = readv(ahead->fd, parts, 2);
    if (count > (ssize_t) size) {
        ahead->start = 0;
        ahead->end = (size_t) count - size;
        return (int) size;
    }
    ahead->ended = count == 0;
    return (int) count;
}

/* Called by OpenSSL to read at most `size` bytes. Returns their number, as BIO_read() does. */
static inline int kc_ahead_read(void *bio, char *data, int size, kc_tls_ahead *ahead)
{
    size_t left = kc_ahead_left(ahead), wanted = size > 0 ? (size_t) size : 0;
    int count;
    ahead->api->BIO_clear_flags(bio, KC_BIO_ALL_RETRIES);
    if (left) {
        if (wanted > left)
            wanted = left;
        memcpy(data, ahead->bytes + ahead->start, wanted);
        ahead->start += wanted;
        return (int) wanted;
    }
    errno = 0;
    count = kc_ahead_receive(ahead, data, wanted);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        ahead->api->BIO_set_flags(bio, KC_BIO_READ_AGAIN);
    return count;
}

/* Called by OpenSSL and Python for everything else. */
static inline long kc_ahead_control(int command, void *pointer, const kc_tls_ahead *ahead)
{
    switch (command) {
    case KC_BIO_CTRL_EOF:
        return ahead->ended;
    case KC_BIO_C_GET_FD:
        if (pointer != NULL)
            *(int *) pointer = ahead->fd;
        return ahead->fd;
    default:
        return command == KC_BIO_C_SET_NBIO;
    }
}

/* Let OpenSSL read a connection from a new source. Returns the source, which belongs to the connection, or NULL without
 * memory for it. */
static inline kc_tls_ahead *kc_ahead_install(const kc_openssl *api, void *ssl)
{
    kc_tls_ahead *ahead = api->ahead_method == NULL ? NULL : calloc(1, sizeof *ahead);
    void *bio = ahead == NULL ? NULL : api->BIO_new(api->ahead_method);
    if (bio == NULL) {
        api->ERR_clear_error();
        free(ahead);
        return NULL;
    }
    ahead->api = api;
    ahead->fd = api->SSL_get_fd(ssl);
    api->BIO_set_data(bio, ahead);
    api->SSL_set0_rbio(ssl, bio);
    return ahead;
}

#endif
