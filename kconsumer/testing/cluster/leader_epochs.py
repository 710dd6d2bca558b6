"""The leader epoch cache of a log (KIP-101): the first offset of each leader epoch."""

from __future__ import annotations

from bisect import bisect_right

UNDEFINED_EPOCH = -1


class LeaderEpochs:
    """The leader epochs in a log and their start offsets, both in ascending order."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def entries(self) -> list[tuple[int, int]]:
        """Returns pairs of leader epoch and start offset."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int | None:
        """The epoch of the last entry, or None if there is no entry."""
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start: int) -> None:
        """Add an epoch that begins with offset `start`. Does nothing if it is the latest epoch, or negative.

        First removes the entries whose epoch is not smaller than `epoch`, or whose start offset is not smaller than
        `start`.
        """
        if epoch < 0 or (self._epochs and self._epochs[-1] == epoch):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int] | None:
        """Returns the largest stored epoch that is not larger than `epoch`, and the end offset of that epoch.

        An epoch ends with the start offset of the next one; the latest epoch ends with `log_end`. If all stored epochs
        are larger than `epoch`, returns `epoch` and the start offset of the first entry. Returns None if `epoch` is -1
        or larger than the latest epoch, or if there are no entries.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return None
        if epoch == self._epochs[-1]:
            return epoch, log_end
        at = bisect_right(self._epochs, epoch)
        return (self._epochs[at - 1] if at else epoch), self._starts[at]

    def truncate(self, end: int) -> None:
        """Remove the entries of epochs that begin at or after offset `end`."""
        while self._starts and self._starts[-1] >= end:
            self._epochs.pop()
            self._starts.pop()

    def delete_before(self, start: int) -> None:
        """Remove the epochs that end at or before offset `start`.

        The epoch that contains `start` begins with `start` afterwards.
        """
        at = bisect_right(self._starts, start)
        if at:
            del self._epochs[: at - 1], self._starts[: at - 1]
            self._starts[0] = max(self._starts[0], start)
