"""AcknowledgeType: what a share consumer says about a record that it has received."""

from __future__ import annotations

import enum

GAP = 0
"""The wire value for an acquired offset that has no record, such as a transaction marker. Users never see it."""


class AcknowledgeType(enum.IntEnum):
    """How a record was processed (Java `AcknowledgeType`). The values are those of the protocol."""

    ACCEPT = 1
    """The record was processed. No member of the group receives it again."""
    RELEASE = 2
    """The record was not processed. The group delivers it again, until its number of deliveries is exhausted."""
    REJECT = 3
    """The record cannot be processed. No member of the group receives it again."""
    RENEW = 4
    """The processing takes longer. The acquisition lock is renewed, and the next poll returns the record again."""
