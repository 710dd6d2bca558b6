"""The compiled part of ConsumerRecords: what each poll creates and each loop begins with."""

cimport cython


from types import GenericAlias, MappingProxyType

NONE = MappingProxyType({})


@cython.auto_pickle(False)
cdef class RunBatch:
    """Runs of records, with the next offset of each partition. The base class of ConsumerRecords."""

    cdef readonly tuple _runs
    cdef readonly object _positions    # partition -> (next offset, leader epoch or None), or with metadata as third
    cdef readonly object _skipped      # partition -> [(first offset, last offset + 1, reason)]
    cdef readonly Py_ssize_t _count
    cdef public tuple _taken           # the runs of the poll, if an interceptor has replaced them by others

    @classmethod
    def __class_getitem__(cls, types):
        return GenericAlias(cls, types)

    @classmethod
    def from_runs(cls, runs, positions=NONE, skipped=NONE):
        """Create a batch of fetched records. `positions` maps partitions to the next offset and its leader epoch.

        `skipped` contains what the method `skipped` returns. Each of the `runs` must contain records, and must not be
        used elsewhere. To make poll() faster, the arguments are not copied. So the caller must not change them later.
        """
        cdef type kind = cls
        cdef RunBatch batch = <RunBatch?> kind.__new__(kind)
        cdef RecordRun run
        batch._fill(tuple(runs), positions, skipped)
        for run in batch._runs:
            run.source = None     # a deserializer that fails later must not move the position back
        return batch

    cpdef _fill(self, tuple runs, positions, skipped):
        """Set the contents. Only constructors call this."""
        cdef RecordRun run
        cdef Py_ssize_t count = 0
        for run in runs:
            count += run.count
        self._runs, self._positions, self._skipped, self._count = runs, positions, skipped, count

    @property
    def count(self):
        """The number of records."""
        return self._count

    def __len__(self):
        return self._count

    def __bool__(self):
        return self._count > 0

    def __iter__(self):
        return RecordIterator.__new__(RecordIterator, self._runs)
