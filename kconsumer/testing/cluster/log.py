"""The log of a partition: its batches, the offsets that limit what a consumer may read, and its leader epochs."""

from __future__ import annotations


class Log:
    """The batches of a partition in the order of their offsets."""

    def __init__(self) -> None:
        self.start = 0  # the first offset that can be read
        self.end = 0  # the offset of the next record
        self.high_watermark = 0

    def truncate(self, end: int) -> None:
        """Remove the records from offset `end` on."""
        self.end = min(self.end, end)
        self.high_watermark = min(self.high_watermark, end)
