# The signal handlers that are replaced while a call works. The engine's lock defers them, too.


cdef class HeldHandlers:
    cdef public bint active         # handlers are deferred
    cdef public object wake         # ends the wait of the call that defers handlers; None if there is no such call
    cdef public object note         # the handler that is installed in place of the original ones
    cdef readonly object get_handler
    cdef public object set_handler
    cdef public unsigned long main  # the identifier of the main thread; 0: never replace handlers again
    cdef readonly dict noted        # signals that arrived while deferred, in order of arrival: number -> frame
    cdef readonly dict handlers     # the original handler of every signal that was ever replaced
    cdef tuple numbers
    cdef tuple known                # the signals that had Python handlers at the last `find_new`
    cdef list seen                  # the handlers of all signals at the end of the last `find_new`
    cdef bint changed               # the user has changed the handler of a known signal since then

    # `hold` and `release` for compiled code.
    cdef bint begin(self, object wake) except -1
    cdef int end(self) except -1
    cdef int find_new(self) except -1
    cdef int look_again(self) except -1
    cdef int restore(self) except -1
    cdef bint any_changed(self) except -1
    cdef int defer_all(self) except -1
