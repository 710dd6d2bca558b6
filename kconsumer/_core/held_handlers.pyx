"""Replaces the Python signal handlers of the process, and restores them.

This runs twice in a poll that waits for the network, so it is compiled: a pair of `hold` and `release` takes 0.3 µs,
most of it in two system calls for each handler. `kconsumer.deferred_signals` decides what happens to a signal that
arrives meanwhile.

A handler that raises can interrupt this code only inside `signal.signal`, which runs the handlers of the signals that
have arrived before it replaces one.
"""

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()


cdef class HeldHandlers:
    """The original handlers of the signals whose handlers are replaced by `note`.

    `get_handler` and `set_handler` are `getsignal` and `signal` of the C module `_signal`. `numbers` has all signals.
    Only the main thread, whose identifier is `main`, replaces handlers.
    """

    def __cinit__(self, get_handler, set_handler, numbers, unsigned long main):
        self.get_handler = get_handler
        self.set_handler = set_handler
        self.numbers = tuple(numbers)
        self.main = main
        self.noted, self.handlers, self.known, self.seen = {}, {}, (), [None] * len(self.numbers)

    @property
    def held(self):
        """True if the calling thread defers handlers."""
        return self.active and PyThread_get_thread_ident() == self.main

    def hold(self, wake=None):
        """Begin to defer signal handlers. `wake` is called when a signal arrives.

        Returns True if this call began to defer. The caller must then call `release`. On any thread but the main
        thread, or if handlers are deferred already, does nothing and returns False.
        """
        if self.active or PyThread_get_thread_ident() != self.main:
            return False
        self.wake = wake
        self.active = True
        try:
            for number in self.known:
                handler = self.set_handler(number, self.note)
                # It is `note` if an earlier `release` was interrupted.
                if handler is not self.note and handler is not self.handlers[number]:
                    self.handlers[number] = handler
                    self.changed = True
        except BaseException as error:  # a handler that is not replaced yet raised
            self.release()
            if isinstance(error, ValueError) and "main thread" in str(error):
                # `main` is not the main thread: this is a sub-interpreter, or a thread other than the main thread has
                # imported `threading`.
                self.main = 0
                return False
            raise
        return True

    def hold_all(self, wake=None):
        """Begin to defer signal handlers, like `hold`, including those that were installed since the last `refresh`."""
        if not self.hold(wake):
            return False
        try:
            self.refresh()
        except BaseException:  # a handler that is not replaced yet raised
            self.release()
            raise
        return True

    def refresh(self):
        """Find the signals that have Python handlers now, and defer those that are not deferred yet.

        `hold` uses the result of the last call, because checking all signals takes longer than replacing a few
        handlers.
        """
        cdef Py_ssize_t i
        if not self.active or PyThread_get_thread_ident() != self.main:
            return
        if not self.changed:
            for i in range(len(self.numbers)):
                if self.get_handler(self.numbers[i]) is not self.seen[i]:
                    break
            else:
                return
        self.defer_all()

    def release(self):
        """Restore the original handlers, then call them for the signals that arrived. Raises their exceptions."""
        if not self.active or PyThread_get_thread_ident() != self.main:
            return
        # Set before the loop. A handler that runs between two calls of the loop may raise, and then some signals keep
        # `note`. That does no harm: while `active` is False, `note` calls the original handler.
        self.active = False
        self.wake = None
        for number in self.known:
            if self.get_handler(number) is self.note:  # else user code has installed another one
                self.set_handler(number, self.handlers[number])
        if self.noted:
            self.run_handlers()

    def run_noted(self):
        """Call the original handlers for the signals that arrived. Raises their exceptions.

        The state must be consistent. Handlers are deferred again afterwards.
        """
        if self.noted and self.held:
            wake = self.wake
            self.release()
            self.hold(wake)

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
                else:  # reset by the user since the last `refresh`
                    self.set_handler(number, self.handlers[number])
            elif callable(handler):
                known.append(number)
                self.handlers[number] = self.set_handler(number, self.note)
            seen.append(self.get_handler(number))
        self.known = tuple(known)
        self.seen = seen
        self.changed = False
        return 0
