"""The rules for what members of a share group that run `kconsumer.parallel` have written into a journal.

A member that was killed may have finished a record without its acceptance. A record whose lock was lost, or whose
acceptance was refused, is delivered to another member, while its handler may still run. Nothing else may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable

from support.harnesses.parallel_journal import Entry

Key = tuple[int, int]  # partition and offset


def repeated(entries: list[Entry]) -> list[str]:
    """Returns records that were started or accepted although that was not allowed.

    After the broker has confirmed that a record is accepted, no member receives it. Before, no two members process it
    at the same time, unless the first one was killed or has lost the lock of the record.
    """
    killed, lost = _killed(entries), _lost(entries)
    accepted: dict[Key, Entry] = {}
    running: dict[Key, Entry] = {}
    found = []
    for entry in entries:
        key = entry.partition, entry.offset
        other = running.get(key)
        if entry.kind in ("start", "accepted") and key in accepted:
            found.append(f"{entry} after {accepted[key]}")
        if entry.kind == "accepted":
            accepted[key] = entry
        elif entry.kind == "start":
            if other is not None and other.member not in killed and (other.member, key) not in lost:
                found.append(f"{entry} while {other}")
            running[key] = entry
        elif entry.kind in ("end", "fail") and other is not None and other.member == entry.member:
            del running[key]
    return found


def not_accepted(entries: list[Entry], written: Iterable[Key]) -> list[str]:
    """Returns records that were lost, and those that were finished but not accepted without a reason.

    Each record is accepted, or a member that was killed has finished it: the broker has accepted it, and the member was
    killed before it knew. What other members have finished is accepted for them, unless they have lost the lock.
    """
    killed, lost = _killed(entries), _lost(entries)
    accepted = {((entry.partition, entry.offset), entry.member) for entry in entries if entry.kind == "accepted"}
    finished = {((entry.partition, entry.offset), entry.member) for entry in entries if entry.kind == "end"}
    settled = {key for key, _ in accepted} | {key for key, member in finished if member in killed}
    found = [f"{key} was not accepted" for key in written if key not in settled]
    for key, member in sorted(finished - accepted):
        if member not in killed and (member, key) not in lost:
            found.append(f"{key} was finished by {member}, which has no acceptance of it")
    return found


def _killed(entries: list[Entry]) -> set[str]:
    return {entry.member for entry in entries if entry.kind == "killed"}


def _lost(entries: list[Entry]) -> set[tuple[str, Key]]:
    return {(entry.member, (entry.partition, entry.offset)) for entry in entries if entry.kind == "lost"}
