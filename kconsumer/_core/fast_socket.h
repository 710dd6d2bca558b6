/* Receives and sends on the sockets of the fast path, without Python. The sockets do not block.

   On other systems than Linux KC_SYSTEM_SOCKETS is 0, and nothing here may be called. */

#ifndef KC_FAST_SOCKET_H
#define KC_FAST_SOCKET_H

#include <stddef.h>

#ifdef __linux__

#include <errno.h>
#include <sys/socket.h>

#define KC_SYSTEM_SOCKETS 1

/* Copy at most `size` received bytes. They can be received again. Returns their number, or a negative error number. */
static inline int kc_peek(int descriptor, unsigned char *bytes, int size)
{
    int count = (int)recv(descriptor, bytes, (size_t)size, MSG_PEEK | MSG_DONTWAIT);
    return count < 0 ? -errno : count;
}

/* Receive at most `size` bytes. Returns their number, 0 at the end of the stream, or a negative error number. */
static inline int kc_receive(int descriptor, unsigned char *bytes, int size)
{
    int count = (int)recv(descriptor, bytes, (size_t)size, MSG_DONTWAIT);
    return count < 0 ? -errno : count;
}

/* Returns how many bytes the socket has taken, or a negative error number. */
static inline int kc_send(int descriptor, const unsigned char *bytes, int size)
{
    int count = (int)send(descriptor, bytes, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
    return count < 0 ? -errno : count;
}

/* Let epoll report the socket only when `count` bytes have arrived, the peer has closed the connection, or the socket's
 * buffer is full. If that fails, it is reported as before. */
static inline void kc_set_low_water_mark(int descriptor, int count)
{
    (void)setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &count, sizeof count);
}

#else

#define KC_SYSTEM_SOCKETS 0

static inline int kc_peek(int descriptor, unsigned char *bytes, int size)
{
    (void)descriptor, (void)bytes, (void)size;
    return -1;
}

static inline int kc_receive(int descriptor, unsigned char *bytes, int size)
{
    (void)descriptor, (void)bytes, (void)size;
    return -1;
}

static inline int kc_send(int descriptor, const unsigned char *bytes, int size)
{
    (void)descriptor, (void)bytes, (void)size;
    return -1;
}

static inline void kc_set_low_water_mark(int descriptor, int count)
{
    (void)descriptor, (void)count;
}

#endif
#endif
