"""Receives large frames in the background, on a thread that never takes the GIL.

Each job names a socket and the memory to receive its next bytes into. A completed job makes a file descriptor readable,
for a selector. Of the protocol this module knows only the four-byte size prefix of a frame. The thread is started at
the first use.
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
        int completed_pipe[2]
    enum:
        KC_JOBS
    kc_receiver* kc_receiver_new()
    void kc_receiver_free(kc_receiver* receiver, int alive)
    int kc_job_begin(kc_receiver* receiver, int fd, unsigned char* memory, size_t size, int framed)
    int kc_job_completed(kc_receiver* receiver)
    void kc_job_collect(kc_receiver* receiver, int number, kc_job* out)
    int kc_jobs_completed(const kc_receiver* receiver)
    size_t kc_job_filled(const kc_receiver* receiver, int number)
    void kc_drain_pipe(int fd)


@cython.final
@cython.auto_pickle(False)
cdef class Receiver:
    """Receives from sockets into memory. All methods, except `ended`, are for one thread at a time."""

    cdef kc_receiver* state
    cdef int pid
    cdef Py_buffer[KC_JOBS] views
    cdef int64_t[KC_JOBS] job_ids   # job ids by index in `state`; 0: no job
    cdef int64_t last_job_id
    cdef dict jobs                # job id -> (index, tag, framed)

    def __cinit__(self):
        self.jobs = {}

    def __dealloc__(self):
        self.stop()

    @property
    def ended(self):
        """The number of completed jobs that were not taken. One atomic read."""
        return 0 if self.state == NULL else kc_jobs_completed(self.state)

    def fileno(self):
        """Return a descriptor that is readable when a job has completed. Starts the thread; raises OSError if that
        fails."""
        if self.state == NULL:
            self.state = kc_receiver_new()
            if self.state == NULL:
                raise OSError(errno, os.strerror(errno))
            self.pid = getpid()
        return self.state.completed_pipe[0]

    def begin(self, int fd, view, tag, bint framed):
        """Start to receive from the socket `fd` into `view`. No other code may read the socket until the job is taken
        or cancelled. With `framed`, a four-byte size comes first, which is not stored in the view.

        `tag` is returned with the result. Returns a unique id of the job, or None if there are too many jobs.
        """
        cdef Py_buffer buffer
        cdef int place
        self.fileno()
        PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
        place = kc_job_begin(self.state, fd, <unsigned char*> buffer.buf, <size_t> buffer.len, framed)
        if place < 0:
            PyBuffer_Release(&buffer)
            return None
        self.last_job_id += 1
        self.views[place] = buffer
        self.job_ids[place] = self.last_job_id
        self.jobs[self.last_job_id] = place, tag, framed
        return self.last_job_id

    def take(self):
        """Remove a completed job. Returns (tag, prefix, number of bytes in the view, errno), or None.

        The prefix is None unless the job was framed. If the peer has closed the connection, errno is 0 and bytes are
        missing. If the announced size exceeds the view, the view has no bytes.
        """
        cdef int place
        if self.state == NULL:
            return None
        place = kc_job_completed(self.state)
        if place < 0:
            kc_drain_pipe(self.state.completed_pipe[0])
            place = kc_job_completed(self.state)
        return None if place < 0 else self.finish(self.job_ids[place])

    def cancel(self, int64_t job_id):
        """Cancel a job if it exists. The caller may use its socket and its view again."""
        if job_id in self.jobs:
            self.finish(job_id)

    def filled(self, int64_t job_id):
        """Return how many bytes of its view a job has received so far; 0 if there is no such job."""
        return kc_job_filled(self.state, self.jobs[job_id][0]) if job_id in self.jobs else 0

    def held(self):
        """Return the tags of all jobs by job id."""
        return {job_id: job[1] for job_id, job in self.jobs.items()}

    cdef tuple finish(self, int64_t job_id):
        cdef kc_job job
        cdef kc_receiver* state = self.state
        cdef int place
        place, tag, framed = self.jobs.pop(job_id)
        with nogil:
            kc_job_collect(state, place, &job)
        self.job_ids[place] = 0
        PyBuffer_Release(&self.views[place])
        prefix = PyBytes_FromStringAndSize(<char*> job.prefix, <Py_ssize_t> job.prefixed) if framed else None
        return tag, prefix, <Py_ssize_t> job.filled, job.error

    def close(self):
        """Stop the thread and cancel every job. In a forked child, which has no such thread, only close the
        descriptors."""
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
            if self.job_ids[place]:
                self.job_ids[place] = 0
                PyBuffer_Release(&self.views[place])
        if self.jobs is not None:  # the garbage collector may have cleared it
            self.jobs.clear()
        return 0

    def __repr__(self):
        return f"<Receiver of {len(self.jobs)} jobs>"
