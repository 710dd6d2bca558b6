/* Waits for the descriptors of an epoll set, and reads the monotonic clock, without Python.

   On other systems than Linux KC_SYSTEM_WAITS is 0, and nothing here may be called. */

#ifndef KC_FAST_WAIT_H
#define KC_FAST_WAIT_H

#ifdef __linux__

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>

#define KC_SYSTEM_WAITS 1
#define KC_MAX_EVENTS 32

/* Wait up to timeout_ms for the descriptors of an epoll set of Python's select.epoll. Stores at most `limit` descriptors
   that are ready; -1 stands for one that can be written. Returns their number, or a negative error number. */
static int kc_wait(int selector, int *readable, int limit, int timeout_ms)
{
    struct epoll_event events[KC_MAX_EVENTS];
    int count, i;
    count = epoll_wait(selector, events, limit < KC_MAX_EVENTS ? limit : KC_MAX_EVENTS, timeout_ms);
    if (count < 0)
        return -errno;
    for (i = 0; i < count; i++)
        readable[i] = events[i].events & EPOLLOUT ? -1 : events[i].data.fd;
    return count;
}

/* Returns what time.monotonic() returns, in ms. */
static double kc_monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

#else

#define KC_SYSTEM_WAITS 0

static int kc_wait(int selector, int *readable, int limit, int timeout_ms)
{
    (void)selector, (void)readable, (void)limit, (void)timeout_ms;
    return -1;
}

static double kc_monotonic_ms(void)
{
    return 0.0;
}

#endif
#endif
