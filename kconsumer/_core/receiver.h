/* A thread that receives from sockets into memory, without the GIL and without Python objects.
 *
 * A job is a socket and the memory to receive its next bytes into, which are decrypted if the connection has TLS. It
 * receives until the memory is full. A framed job instead receives a four-byte size and then that number of bytes. The
 * thread completes a job when all bytes were received, when the frame does not fit into the memory, when the peer has
 * closed the connection, or when the socket or TLS failed. Then it makes `completed_pipe[0]` readable.
 *
 * `lock` guards all fields of kc_receiver except `ended`. While a job is `busy`, only the thread may use it, even if
 * the lock is free. */
#ifndef KCONSUMER_RECEIVER_H
#define KCONSUMER_RECEIVER_H

#ifdef _WIN32
#include "windows_stubs.h"
#else

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tls.h"

#define KC_JOBS 64
#define KC_MAX_RECV_BYTES ((size_t) 1 << 20)    /* for one recv(), so that other sockets get their turn */
#define KC_MAX_DECRYPT_BYTES ((size_t) 1 << 18) /* between two updates of `filled` */

#define KC_PREFIX 4
#define KC_POLL_FAILED_PAUSE_NS 10000000L /* 10 ms between two attempts to read all sockets, while poll() fails */

/* While more bytes than this are missing, the thread is woken only after this many have arrived, and not for each TLS
 * record. */
#define KC_LOW_WATER 65536
#define KC_MAX_HELD_BYTES 20000 /* what OpenSSL may have received of a TLS record and not returned yet */
#define KC_LOW_WATER_MS 20      /* after this time the thread receives what there is, so that `filled` shows progress */

typedef enum { KC_UNUSED, KC_RECEIVING, KC_COMPLETED } kc_job_state;

typedef struct {
    kc_job_state state;
    int busy;
    int fd;
    kc_tls *tls; /* decrypts the bytes; NULL: the socket has no TLS */
    int ready;     /* `tls` may have bytes that poll() does not report */
    int low_water; /* how many bytes the socket must have before poll() reports it */
    int error;     /* errno of the socket; 0: none */
    unsigned char *memory;
    size_t size;   /* bytes to receive into the memory: its size, or that of the frame once its prefix was received */
    size_t filled; /* bytes received into the memory; the thread writes it atomically, for kc_job_filled */
    unsigned char prefix[KC_PREFIX];
    size_t prefixed; /* received bytes of the prefix; KC_PREFIX from the start for a job that is not framed */
} kc_job;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t not_busy;
    pthread_t thread;
    int stopping;
    int wake[2];           /* a pipe that wakes the thread after a job began or was removed, or for `stopping` */
    int completed_pipe[2]; /* a pipe that becomes readable when a job has completed */
    int ended;             /* the number of completed jobs that were not collected; atomic */
    kc_job jobs[KC_JOBS];
} kc_receiver;

static inline void kc_notify(int fd)
{
    /* If the pipe is full, it is readable already. */
    while (write(fd, "", 1) < 0 && errno == EINTR)
        ;
}

static inline void kc_drain_pipe(int fd)
{
    char waste[64];
    ssize_t n;
    do
        n = read(fd, waste, sizeof waste);
    while (n == (ssize_t) sizeof waste || (n < 0 && errno == EINTR));
}

/* Set the size of a job from its complete prefix. Returns 0, without a change, if the frame does not fit. */
static inline int kc_frame_fits(kc_job *job)
{
    size_t size = (size_t) job->prefix[0] << 24 | (size_t) job->prefix[1] << 16 | (size_t) job->prefix[2] << 8 |
                  (size_t) job->prefix[3];
    if (size > job->size)
        return 0;
    job->size = size;
    return 1;
}

/* Receive at most `size` bytes of a job into `at`, with one call. Returns their number. Sets `*empty` to whether the
 * socket has no more bytes now, and `*ended` to whether there will be none. */
static inline size_t kc_receive_some(kc_job *job, unsigned char *at, size_t size, int *empty, int *ended)
{
    ssize_t n = recv(job->fd, at, size < KC_MAX_RECV_BYTES ? size : KC_MAX_RECV_BYTES, MSG_DONTWAIT);
    *empty = n < (ssize_t) size;
    *ended = n == 0;
    if (n < 0) {
        job->error = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : errno;
        *ended = job->error != 0;
        return 0;
    }
    return (size_t) n;
}

/* The same over TLS. If it has ended, the next read by the caller returns the reason. */
static inline size_t kc_decrypt_some(kc_job *job, unsigned char *at, size_t size, int *empty, int *ended)
{
    kc_tls_stop stop;
    size_t n = kc_tls_read(job->tls, at, size, size < KC_MAX_DECRYPT_BYTES ? size : KC_MAX_DECRYPT_BYTES, &stop);
    *empty = stop.error == KC_SSL_ERROR_WANT_READ;
    *ended = stop.error != 0 && !*empty;
    if (*ended)
        job->tls->unreported = 1;
    return n;
}

/* Receive bytes of a job. Returns 0 if the job is complete. Sets `*empty` to whether the socket has no more bytes
 * now. */
static inline int kc_receive_part(kc_job *job, int *empty)
{
    int at_prefix = job->prefixed < KC_PREFIX, ended, more;
    unsigned char *at = at_prefix ? job->prefix + job->prefixed : job->memory + job->filled;
    size_t wanted = at_prefix ? KC_PREFIX - job->prefixed : job->size - job->filled;
    size_t n = job->tls == NULL ? kc_receive_some(job, at, wanted, empty, &ended)
                                : kc_decrypt_some(job, at, wanted, empty, &ended);
    if (at_prefix) {
        job->prefixed += n;
        more = job->prefixed < KC_PREFIX || (kc_frame_fits(job) && job->size > 0);
    } else {
        __atomic_store_n(&job->filled, job->filled + n, __ATOMIC_RELAXED);
        more = job->filled < job->size;
    }
    return more && !ended;
}

/* Set from how many bytes on poll() reports a socket. Only Linux also reports a socket that has fewer bytes and can
 * receive no more, because its buffer is full. */
static inline void kc_set_low_water(kc_job *job, int bytes)
{
#ifdef __linux__
    if (job->low_water != bytes && setsockopt(job->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0)
        job->low_water = bytes;
#else
    (void) job, (void) bytes;
#endif
}

/* Receive all bytes of a job that are available now, and complete the job if it has all. The caller holds the lock,
 * which is released during recv(). */
static inline void kc_run_job(kc_receiver *receiver, kc_job *job)
{
    int more, many, empty;
    job->busy = 1;
    job->ready = 0;
    pthread_mutex_unlock(&receiver->lock);
    do
        more = kc_receive_part(job, &empty);
    while (more && !empty);
    many = more && job->prefixed == KC_PREFIX && job->size - job->filled > KC_LOW_WATER + KC_MAX_HELD_BYTES;
    kc_set_low_water(job, many ? KC_LOW_WATER : 1);
    pthread_mutex_lock(&receiver->lock);
    job->busy = 0;
    if (!more) {
        job->state = KC_COMPLETED;
        __atomic_add_fetch(&receiver->ended, 1, __ATOMIC_RELEASE);
    }
    pthread_cond_broadcast(&receiver->not_busy);
    if (!more) {
        pthread_mutex_unlock(&receiver->lock); /* the thread that is notified needs the lock at once */
        kc_notify(receiver->completed_pipe[1]);
        pthread_mutex_lock(&receiver->lock);
    }
}

/* Wait at most `timeout_ms` until descriptors are ready (-1: forever). Returns their number, or -1 if poll() failed.
 * It fails with EINVAL if the process has lowered RLIMIT_NOFILE below the number of descriptors, and with ENOMEM. As it
 * would fail again at once, this function sleeps for KC_POLL_FAILED_PAUSE_NS, and the caller then tries to read every
 * socket. */
static inline int kc_wait_ready(struct pollfd *watched, nfds_t count, int timeout_ms)
{
    const struct timespec pause = {0, KC_POLL_FAILED_PAUSE_NS};
    int found = poll(watched, count, timeout_ms);
    if (found >= 0)
        return found;
    if (errno == EINTR)
        return 0;
    nanosleep(&pause, NULL);
    return -1;
}

static void *kc_receive(void *argument)
{
    kc_receiver *receiver = argument;
    struct pollfd watched[KC_JOBS + 1];
    kc_job *jobs[KC_JOBS + 1];
    nfds_t count, i;
    int j, found, ready, held;
    pthread_mutex_lock(&receiver->lock);
    while (!receiver->stopping) {
        count = 1;
        ready = held = 0;
        watched[0].fd = receiver->wake[0];
        watched[0].events = POLLIN;
        watched[0].revents = 0;
        for (j = 0; j < KC_JOBS; j++) {
            if (receiver->jobs[j].state != KC_RECEIVING)
                continue;
            jobs[count] = &receiver->jobs[j];
            watched[count].fd = receiver->jobs[j].fd;
            watched[count].events = POLLIN;
            watched[count].revents = 0;
            ready |= jobs[count]->ready;
            held |= jobs[count]->low_water > 1;
            count++;
        }
        pthread_mutex_unlock(&receiver->lock);
        found = kc_wait_ready(watched, count, ready ? 0 : held ? KC_LOW_WATER_MS : -1);
        if (found < 0 || watched[0].revents)
            kc_drain_pipe(receiver->wake[0]);
        pthread_mutex_lock(&receiver->lock);
        for (i = 1; i < count && !receiver->stopping; i++)
            /* While the lock was free, the job may have been cancelled, and another job may have taken its entry. */
            if ((found < 0 || watched[i].revents || jobs[i]->ready || (found == 0 && jobs[i]->low_water > 1)) &&
                jobs[i]->state == KC_RECEIVING && jobs[i]->fd == watched[i].fd)
                kc_run_job(receiver, jobs[i]);
    }
    pthread_mutex_unlock(&receiver->lock);
    return NULL;
}

static inline int kc_pipe(int ends[2])
{
    int i;
    if (pipe(ends) < 0)
        return -1;
    for (i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    return 0;
}

static inline void kc_close_pipe(int ends[2])
{
    close(ends[0]);
    close(ends[1]);
}

/* Create a receiver and start its thread. Returns NULL and sets errno if descriptors, memory or threads are
 * exhausted. */
static inline kc_receiver *kc_receiver_new(void)
{
    kc_receiver *receiver = calloc(1, sizeof *receiver);
    sigset_t all, before;
    int error;
    if (receiver == NULL)
        return NULL;
    if (kc_pipe(receiver->wake) < 0)
        goto no_wake_pipe;
    if (kc_pipe(receiver->completed_pipe) < 0)
        goto no_completed_pipe;
    pthread_mutex_init(&receiver->lock, NULL);
    pthread_cond_init(&receiver->not_busy, NULL);
    /* Signals must be delivered to Python's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&receiver->thread, NULL, kc_receive, receiver);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return receiver;
    errno = error;
    kc_close_pipe(receiver->completed_pipe);
no_completed_pipe:
    kc_close_pipe(receiver->wake);
no_wake_pipe:
    error = errno;
    free(receiver);
    errno = error;
    return NULL;
}

/* Stop the thread, close the pipes and free the receiver. `alive` is 0 in a forked child process, where the thread does
 * not exist. */
static inline void kc_receiver_free(kc_receiver *receiver, int alive)
{
    if (alive) {
        pthread_mutex_lock(&receiver->lock);
        receiver->stopping = 1;
        pthread_mutex_unlock(&receiver->lock);
        kc_notify(receiver->wake[1]);
        pthread_join(receiver->thread, NULL);
        pthread_cond_destroy(&receiver->not_busy);
        pthread_mutex_destroy(&receiver->lock);
    }
    kc_close_pipe(receiver->wake);
    kc_close_pipe(receiver->completed_pipe);
    free(receiver);
}

/* Start a job. `tls` decrypts the bytes, unless it is NULL. Returns the job's number, or -1 if there are too many
 * jobs. */
static inline int
kc_job_begin(kc_receiver *receiver, int fd, kc_tls *tls, unsigned char *memory, size_t size, int framed)
{
    int number, ready = tls != NULL && kc_tls_pending(tls);
    kc_job *job;
    if (tls != NULL)
        kc_tls_keep_buffer(tls);
    pthread_mutex_lock(&receiver->lock);
    for (number = 0; number < KC_JOBS && receiver->jobs[number].state != KC_UNUSED; number++)
        ;
    if (number < KC_JOBS) {
        job = &receiver->jobs[number];
        job->fd = fd;
        job->tls = tls;
        job->ready = ready;
        job->low_water = 1;
        job->error = 0;
        job->memory = memory;
        job->size = size;
        job->filled = 0;
        job->prefixed = framed ? 0 : KC_PREFIX;
        job->state = KC_RECEIVING;
    }
    pthread_mutex_unlock(&receiver->lock);
    if (number == KC_JOBS)
        return -1;
    kc_notify(receiver->wake[1]);
    return number;
}

/* Return the number of a completed job, or -1. */
static inline int kc_job_completed(kc_receiver *receiver)
{
    int number, found = -1;
    pthread_mutex_lock(&receiver->lock);
    for (number = 0; number < KC_JOBS && found < 0; number++)
        if (receiver->jobs[number].state == KC_COMPLETED)
            found = number;
    pthread_mutex_unlock(&receiver->lock);
    return found;
}

/* Remove a job, completed or not, and copy it to `out`. After that, the caller may use the job's memory and descriptor
 * again. */
static inline void kc_job_collect(kc_receiver *receiver, int number, kc_job *out)
{
    kc_job *job = &receiver->jobs[number];
    pthread_mutex_lock(&receiver->lock);
    while (job->busy)
        pthread_cond_wait(&receiver->not_busy, &receiver->lock);
    kc_set_low_water(job, 1);
    *out = *job;
    job->state = KC_UNUSED;
    pthread_mutex_unlock(&receiver->lock);
    if (out->state == KC_COMPLETED)
        __atomic_sub_fetch(&receiver->ended, 1, __ATOMIC_RELAXED);
    else
        kc_notify(receiver->wake[1]); /* the descriptor may be closed next: stop watching it */
}

/* Return the number of bytes that a job has received into its memory. The job may still be running. */
static inline size_t kc_job_filled(const kc_receiver *receiver, int number)
{
    return __atomic_load_n(&receiver->jobs[number].filled, __ATOMIC_RELAXED);
}

static inline int kc_jobs_completed(const kc_receiver *receiver)
{
    return __atomic_load_n(&receiver->ended, __ATOMIC_ACQUIRE);
}

static inline int64_t kc_process_id(void)
{
    return getpid();
}

#endif
#endif
