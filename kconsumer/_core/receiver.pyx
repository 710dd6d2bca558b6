"""Receiving large frames beside everything else: on a thread of the system that never asks for the GIL.

Decides nothing: it is told which descriptor's next bytes belong in which memory, fills that memory, and says so by a
descriptor to select on. Of the protocol it knows the four-byte size before a frame. Starts its thread at the first use.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport int64_t
from posix.unistd cimport getpid

import os


cdef extern from "receiver.h" nogil:
    ctypedef struct kc_job:
        int error
        size_t filled
        unsigned char* prefix
        size_t prefixed
    ctypedef struct kc_receiver:
        int told[2]
    enum:
        KC_JOBS
    kc_receiver* kc_receiver_new()
    void kc_receiver_free(kc_receiver* receiver, int alive)
    int kc_job_begin(kc_receiver* receiver, int fd, unsigned char* memory, size_t size, int framed)
    int kc_job_ended(kc_receiver* receiver)
    void kc_job_collect(kc_receiver* receiver, int number, kc_job* out)
    int kc_jobs_ended(const kc_receiver* receiver)
    size_t kc_job_filled(const kc_receiver* receiver, int number)
    void kc_empty(int fd)


@cython.final
@cython.auto_pickle(False)
cdef class Receiver:
    """Fills memory from sockets. For one thread at a time, but for `ended`."""

    cdef kc_receiver* state
    cdef int pid
    cdef Py_buffer[KC_JOBS] views
    cdef int64_t[KC_JOBS] names   # of the jobs by their place in `state`; 0: there is none
    cdef int64_t last_name
    cdef dict jobs                # name -> (place, tag, whether it is framed)

    def __cinit__(self):
        self.jobs = {}

    def __dealloc__(self):
        self.stop()

    @property
    def ended(self):
        """How many jobs have ended that were not taken. Costs next to nothing."""
        return 0 if self.state == NULL else kc_jobs_ended(self.state)

    def fileno(self):
        """Readable when a job has ended. Starts the thread; OSError if the system refuses."""
        if self.state == NULL:
            self.state = kc_receiver_new()
            if self.state == NULL:
                raise OSError(errno, os.strerror(errno))
            self.pid = getpid()
        return self.state.told[0]

    def begin(self, int fd, view, tag, bint framed):
        """Fill `view` from the socket `fd`, which nobody else may read until the job was taken or cancelled. If it is
        `framed`, the size of what belongs in the view comes first, and is not put there.

        `tag` comes back with the result. A name for the job, which no other job ever has; None if there are too many.
        """
        cdef Py_buffer buffer
        cdef int place
        self.fileno()
        PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
        place = kc_job_begin(self.state, fd, <unsigned char*> buffer.buf, <size_t> buffer.len, framed)
        if place < 0:
            PyBuffer_Release(&buffer)
            return None
        self.last_name += 1
        self.views[place] = buffer
        self.names[place] = self.last_name
        self.jobs[self.last_name] = place, tag, framed
        return self.last_name

    def take(self):
        """A job that has ended: (tag, prefix, bytes in the view, errno), or None.

        The prefix is None unless the job was framed. When the peer has closed, the errno is 0 and bytes are missing.
        The view has none if what the prefix announces did not fit.
        """
        cdef int place
        if self.state == NULL:
            return None
        place = kc_job_ended(self.state)
        if place < 0:
            kc_empty(self.state.told[0])
            place = kc_job_ended(self.state)
        return None if place < 0 else self.finish(self.names[place])

    def cancel(self, int64_t name):
        """End a job now, if it is there: its socket and its view are the caller's again."""
        if name in self.jobs:
            self.finish(name)

    def filled(self, int64_t name):
        """Return how many bytes of its view a job has received so far; 0 if there is no such job."""
        return kc_job_filled(self.state, self.jobs[name][0]) if name in self.jobs else 0

    def held(self):
        """Return the tags of all jobs by name."""
        return {name: job[1] for name, job in self.jobs.items()}

    cdef tuple finish(self, int64_t name):
        cdef kc_job job
        cdef kc_receiver* state = self.state
        cdef int place
        place, tag, framed = self.jobs.pop(name)
        with nogil:
            kc_job_collect(state, place, &job)
        self.names[place] = 0
        PyBuffer_Release(&self.views[place])
        prefix = PyBytes_FromStringAndSize(<char*> job.prefix, <Py_ssize_t> job.prefixed) if framed else None
        return tag, prefix, <Py_ssize_t> job.filled, job.error

    def close(self):
        """End the thread and every job. In a forked child, where there is no thread: give up the descriptors."""
        self.stop()

    cdef int stop(self) except -1:
        cdef kc_receiver* state = self.state
        cdef bint alive = self.pid == getpid()
        cdef int place
        self.state = NULL
        if state != NULL:
            with nogil:
                kc_receiver_free(state, alive)
        for place in range(KC_JOBS):
            if self.names[place]:
                self.names[place] = 0
                PyBuffer_Release(&self.views[place])
        if self.jobs is not None:  # the collector of cycles may have emptied or taken it
            self.jobs.clear()
        return 0

    def __repr__(self):
        return f"<Receiver of {len(self.jobs)} jobs>"
