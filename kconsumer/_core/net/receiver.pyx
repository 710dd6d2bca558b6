"""Receives large frames in the background, on a thread that never takes the GIL.

A job is a socket and the memory to receive its next bytes into. When a job has completed, a file descriptor becomes
readable, which a selector can watch. This module parses only the four-byte size prefix of a frame. The first use
starts the thread.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport int64_t


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
    int kc_job_begin(kc_receiver* receiver, int fd, kc_tls* tls, unsigned char* memory, size_t size, int framed)
    int kc_job_completed(kc_receiver* receiver)
    void kc_job_collect(kc_receiver* receiver, int number, kc_job* out)
    int kc_jobs_completed(const kc_receiver* receiver)
    size_t kc_job_filled(const kc_receiver* receiver, int number)
    void kc_drain_pipe(int fd)
    int64_t kc_process_id()


@cython.final
@cython.auto_pickle(False)
cdef class Receiver:
    """Receives from sockets into memory. Only one thread at a time may use it, but any thread may read `completed`."""

    cdef kc_receiver* state       # NULL: the thread was not started, or was stopped
    cdef int64_t pid              # of the process that started the thread
    cdef Py_buffer[KC_JOBS] views   # the memory of each job, by index in `state`
    cdef int64_t[KC_JOBS] job_ids   # the id of each job, by index in `state`; 0: no job
    cdef int64_t last_job_id
    cdef dict jobs                # job id -> (index, tag, framed, channel)

    def __cinit__(self):
        self.jobs = {}

    def __dealloc__(self):
        self.stop()

    @property
    @cython.critical_section
    def completed(self):
        """The number of completed jobs that `take` has not returned yet. Reads one atomic variable."""
        return 0 if self.state == NULL else kc_jobs_completed(self.state)

    def fileno(self):
        """Returns a file descriptor that becomes readable when a job has completed.

        Starts the thread at the first call. Raises OSError if the thread cannot be started.
        """
        if self.state == NULL:
            self.state = kc_receiver_new()
            if self.state == NULL:
                raise OSError(errno, os.strerror(errno))
            self.pid = kc_process_id()
        return self.state.completed_pipe[0]

    def begin(self, int fd, view, tag, bint framed, TlsChannel channel=None):
        """Start a job that receives from the socket `fd` into the buffer `view`. Returns the id of the job.

        Returns None if there are too many jobs. No other code may read the socket until the job is taken or cancelled.
        `tag` is returned with the result. If `framed` is True, the job first receives a four-byte size, which is not
        stored in `view`, and then that number of bytes. Otherwise it receives until `view` is full. `channel` decrypts
        the bytes; None: they are not encrypted.
        """
        cdef Py_buffer buffer
        cdef kc_receiver* state
        cdef kc_tls* tls = NULL if channel is None else channel.tls
        cdef int index
        self.fileno()
        PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
        state = self.state
        with nogil:
            index = kc_job_begin(state, fd, tls, <unsigned char*> buffer.buf, <size_t> buffer.len, framed)
        if index < 0:
            PyBuffer_Release(&buffer)
            return None
        self.last_job_id += 1
        self.views[index] = buffer
        self.job_ids[index] = self.last_job_id
        self.jobs[self.last_job_id] = index, tag, framed, channel
        return self.last_job_id

    def take(self):
        """Remove a completed job. Returns (tag, prefix, number of bytes received into the view, errno).

        Returns None if no job has completed. `tag` is the one given to `begin`. `prefix` is the received size prefix,
        or None if the job was not framed. If the peer has closed the connection, errno is 0, and the prefix or the
        bytes in the view are incomplete. If the frame is larger than the view, no bytes were received into the view.
        """
        cdef int index
        if self.state == NULL:
            return None
        index = kc_job_completed(self.state)
        if index < 0:
            kc_drain_pipe(self.state.completed_pipe[0])
            index = kc_job_completed(self.state)
        return None if index < 0 else self.finish(self.job_ids[index])

    def cancel(self, int64_t job_id):
        """Cancel a job if it exists. After that, the caller may use the socket and the view again."""
        if job_id in self.jobs:
            self.finish(job_id)

    def filled(self, int64_t job_id):
        """Returns how many bytes a job has received into its view so far, or 0 if there is no such job."""
        return kc_job_filled(self.state, self.jobs[job_id][0]) if job_id in self.jobs else 0

    def held(self):
        """Returns the jobs that were neither taken nor cancelled, as a dict of job id -> tag."""
        return {job_id: job[1] for job_id, job in self.jobs.items()}

    cdef tuple finish(self, int64_t job_id):
        """Remove a job, which may be incomplete. Returns the same tuple as `take`."""
        cdef kc_job job
        cdef kc_receiver* state = self.state
        cdef int index
        index, tag, framed, _channel = self.jobs.pop(job_id)  # the thread may use it until the job is collected
        with nogil:
            kc_job_collect(state, index, &job)
        self.job_ids[index] = 0
        PyBuffer_Release(&self.views[index])
        prefix = PyBytes_FromStringAndSize(<char*> job.prefix, <Py_ssize_t> job.prefixed) if framed else None
        return tag, prefix, <Py_ssize_t> job.filled, job.error

    def close(self):
        """Cancel all jobs, stop the thread and close the file descriptors of this object.

        A forked child process has no such thread, so there is none to stop.
        """
        self.stop()

    cdef int stop(self) except -1:
        cdef kc_receiver* state
        cdef bint alive = self.pid == kc_process_id()
        cdef int index
        with cython.critical_section(self):     # no thread reads `completed` now or later
            state, self.state = self.state, NULL
        if state != NULL:
            with nogil:
                kc_receiver_free(state, alive)
        for index in range(KC_JOBS):
            if self.job_ids[index]:
                self.job_ids[index] = 0
                PyBuffer_Release(&self.views[index])
        if self.jobs is not None:  # the garbage collector may have cleared it
            self.jobs.clear()
        return 0

    def __repr__(self):
        return f"<Receiver of {len(self.jobs)} jobs>"
