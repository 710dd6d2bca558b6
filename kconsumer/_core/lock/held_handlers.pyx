"""Replaces the Python signal handlers of the process, and restores them.

This runs twice in a poll that waits for the network, so it is compiled: a pair of `hold` and `release` takes 0.6 µs,
half of it in two system calls for each handler. `kconsumer._internal.deferred_signals` decides what happens to a signal
that arrives meanwhile.

A handler that raises can interrupt this code only inside `signal.signal`, which runs the handlers of the signals that
have arrived before it replaces one.
"""

from cpython.object cimport PyObject

cdef extern from "Python.h":
    ctypedef PyObject* (*PyCFunction)(PyObject* itself, PyObject* argument) except NULL
    bint PyCFunction_Check(object)
    int PyCFunction_GetFlags(object) except -1
    PyCFunction PyCFunction_GetFunction(object) except NULL
    PyObject* PyCFunction_GetSelf(object) except? NULL
    enum:
        METH_O
    PyObject* PyList_GET_ITEM(object, Py_ssize_t)
    PyObject* PyTuple_GET_ITEM(object, Py_ssize_t)
    unsigned long PyThread_get_thread_ident()
    void Py_DECREF(PyObject*)


cdef class HeldHandlers:
    """The original handlers of the signals whose handlers are replaced by `note`.

    `get_handler` and `set_handler` are `getsignal` and `signal` of the C module `_signal`. `numbers` has all signals.
    Only the main thread, whose identifier is `main`, replaces handlers.
    """

    def __cinit__(self, get_handler, set_handler, numbers, unsigned long main):
        if not PyCFunction_Check(get_handler) or not PyCFunction_GetFlags(get_handler) & METH_O:
            raise TypeError("get_handler must be a builtin function with one argument")
        self.get_handler = get_handler
        self.set_handler = set_handler
        self.numbers = tuple(numbers)
        self.main = main
        self.noted, self.handlers, self.known, self.seen = {}, {}, (), [None] * len(self.numbers)

    @property
    def held(self):
        """True if the calling thread defers handlers."""
        return PyThread_get_thread_ident() == self.main and self.active

    def hold(self, wake=None):
        """Begin to defer signal handlers. `wake` is called when a signal arrives.

        Returns True if this call began to defer. The caller must then call `release`. On any thread but the main
        thread, or if handlers are deferred already, does nothing and returns False.

        Afterwards every Python handler is replaced, whenever it was installed: a nested call, which acquires a lock,
        does not look again. Until then `active` is False. So a handler that runs in the middle of this, and those calls
        of it that begin to defer handlers, find what they would have found just before.
        """
        return self.begin(wake)

    cdef bint begin(self, object wake) except -1:
        if PyThread_get_thread_ident() != self.main or self.active:  # no other thread may read `active`
            return False
        try:
            for number in self.known:
                handler = self.set_handler(number, self.note)
                # It is `note` if an earlier `release` was interrupted.
                if handler is not self.note and handler is not self.handlers[number]:
                    self.handlers[number] = handler
                    self.changed = True
            self.find_new()
        except BaseException as error:  # a handler that is not replaced yet raised
            self.restore()
            if isinstance(error, ValueError) and "main thread" in str(error):
                # `main` is not the main thread: this is a sub-interpreter, or a thread other than the main thread has
                # imported `threading`.
                self.main = 0
                return False
            raise
        self.wake = wake
        self.active = True
        return True

    cdef int find_new(self) except -1:
        """Replace the handlers that were installed since the last call. A handler that runs meanwhile may change some.

        Only the main thread may call this.
        """
        while self.changed or self.any_changed():
            self.defer_all()
        return 0

    cdef int look_again(self) except -1:
        """Replace handlers that user code has installed while handlers are deferred."""
        if PyThread_get_thread_ident() == self.main and self.active:
            self.find_new()
        return 0

    cdef bint any_changed(self) except -1:
        """Returns True if the handler of any signal is another object than at the end of the last `find_new`.

        This is asked in each poll, for all signals, so it calls the C function behind `get_handler`, and counts no
        references.
        """
        cdef Py_ssize_t i, count = len(self.numbers)
        cdef list seen = self.seen
        cdef tuple numbers = self.numbers
        cdef PyCFunction get = PyCFunction_GetFunction(self.get_handler)
        cdef PyObject* module = PyCFunction_GetSelf(self.get_handler)
        cdef PyObject* found
        for i in range(count):
            found = get(module, PyTuple_GET_ITEM(numbers, i))
            Py_DECREF(found)    # the interpreter holds another reference
            if found != PyList_GET_ITEM(seen, i):
                return True
        return False

    def release(self):
        """Restore the original handlers, then call them for the signals that arrived. Raises their exceptions."""
        self.end()

    cdef int end(self) except -1:
        if not self.active or PyThread_get_thread_ident() != self.main:
            return 0
        # Set before the loop. A handler that runs between two calls of the loop may raise, and then some signals keep
        # `note`. That does no harm: while `active` is False, `note` calls the original handler.
        self.active = False
        self.wake = None
        self.restore()
        if self.noted:
            self.run_handlers()
        return 0

    cdef int restore(self) except -1:
        """Install the original handlers again."""
        for number in self.known:
            if self.get_handler(number) is self.note:  # else user code has installed another one
                self.set_handler(number, self.handlers[number])
        return 0

    def run_noted(self):
        """Call the original handlers for the signals that arrived. Raises their exceptions.

        The state must be consistent. Handlers are deferred again afterwards.
        """
        if self.noted and self.held:
            wake = self.wake
            self.end()
            self.begin(wake)

    def run_handlers(self):
        """Call the original handlers for the signals in `noted`, and remove these. Raises their exceptions."""
        raise NotImplementedError

    cdef int defer_all(self) except -1:
        """Replace the handlers of all signals that have a Python handler."""
        cdef list known = [], seen = []
        self.changed = True  # until the end, which a handler that raises may prevent
        for number in self.numbers:
            handler = self.get_handler(number)
            if handler is self.note:
                if callable(self.handlers[number]):
                    known.append(number)
                else:  # reset by the user since the last `find_new`
                    self.set_handler(number, self.handlers[number])
            elif callable(handler):
                known.append(number)
                self.handlers[number] = self.set_handler(number, self.note)
            seen.append(self.get_handler(number))
        self.known = tuple(known)
        self.seen = seen
        self.changed = False
        return 0
