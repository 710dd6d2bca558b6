/* Opens, changes and closes an epoll set, without Python. `fast_wait.h` waits for it.

   On other systems than Linux nothing here may be called. */

#ifndef KC_SHARED_EPOLL_H
#define KC_SHARED_EPOLL_H

#ifdef __linux__

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Returns the descriptor of a new epoll set, or a negative error number. */
static int kc_open_epoll(void)
{
    int selector = epoll_create1(EPOLL_CLOEXEC);
    return selector < 0 ? -errno : selector;
}

/* Add a descriptor to an epoll set, which reports it while it can be read. Returns 0, or a negative error number. */
static int kc_add(int selector, int descriptor)
{
    struct epoll_event event = {0};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    return epoll_ctl(selector, EPOLL_CTL_ADD, descriptor, &event) < 0 ? -errno : 0;
}

/* Remove a descriptor from an epoll set. The set may not contain it, because the kernel removes closed files. */
static void kc_remove_descriptor(int selector, int descriptor)
{
    struct epoll_event event = {0};
    epoll_ctl(selector, EPOLL_CTL_DEL, descriptor, &event);
}

/* Close an epoll set. */
static void kc_close_epoll(int selector)
{
    close(selector);
}

/* Returns the number of this process. */
static int kc_process(void)
{
    return (int)getpid();
}

#else

static int kc_open_epoll(void)
{
    return -1;
}

static int kc_add(int selector, int descriptor)
{
    (void)selector, (void)descriptor;
    return -1;
}

static void kc_remove_descriptor(int selector, int descriptor)
{
    (void)selector, (void)descriptor;
}

static void kc_close_epoll(int selector)
{
    (void)selector;
}

static int kc_process(void)
{
    return 0;
}

#endif
#endif
