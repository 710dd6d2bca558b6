"""Messages that the documentation quotes are messages of the library, word by word.

An expression in an f-string is a gap in the message, as is %s in a log message. A page may have any words for it. `…`
in a page stands for omitted words.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# What pages quote. A message that changes is changed here and in the page.
QUOTES = {
    "docs/security.md": [
        "refused the login by SCRAM-SHA-512: …",
        "does not take SCRAM-SHA-512 here, but PLAIN (set sasl_mechanism)",
        "wants no login on this port (set security_protocol …)",
        "closes connections at the first request: a listener with SASL does so … takes logins by PLAIN",
        "https://… returned 401: …",
    ],
    "docs/guides/operating.md": [
        "… cannot be reached: …; next attempt in … ms",
        "… this is the address that the broker advertises, and not one of bootstrap_servers; …",
        "… has not been resolved to an address for … ms",
        "… has not responded …",
        "starting again from the bootstrap servers: …",
        "topic … does not exist; metadata is requested again from time to time",
        "…: waiting for … for … s: …",
        "group …: no poll() for … leaving the group.",
        "group …: auto-commit failed, will be tried again: …",
        "group …: commit before the rebalance failed: …",
        "topic … was deleted and created again: offset … of … belongs to the old one",
        "offset … of … is out of range, … of the log: continuing at offset …",
        "no records of … for … s: …",
        "reading … from the leader for the next … s: …",
        "certificates have changed, those read before are used: …",
        "found coordinator … of group …",
        "group …: joined generation … as … (…)",
        "group …: assigned …",
        "group …: rejoin requested: …",
        "reset the position of … to offset …",
        "the connection to … was lost: …",
        "restarting fetch session … with broker …: …",
    ],
    "docs/assignors.md": ['gave orders-3 twice: to "a-1" and to "b-7"'],
    "docs/design/hostile-bytes.md": ["the bytes of the records were changed while they were being read"],
}


@cache
def messages() -> list[list[str]]:
    """Returns the texts of the library as lists of words; a word with a gap in it contains `{}`."""
    found = []
    for path in (ROOT / "kconsumer").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    for path in (ROOT / "kconsumer" / "_core").rglob("*.pyx"):
        found += re.findall(r'"([^"\n]+)"', path.read_text(encoding="utf-8"))
    return [re.sub(r"%(?:\.\d)?[sdrf]", "{}", text).split() for text in found]  # logging has gaps like %s


def phrases(quote: str) -> Iterator[list[str]]:
    """Yield the words of each part of a quote between `…`."""
    for phrase in quote.split("…"):
        words = phrase.split()
        if len(words) > 1:
            yield words


def contains(message: list[str], phrase: list[str]) -> bool:
    """Returns whether the words follow each other in a message, at least half of them outside of gaps."""
    if 2 * len(set(message) & set(phrase)) < len(set(phrase)):
        return False
    return any(2 * _in_both(message[start:], phrase) >= len(phrase) for start in range(len(message)))


def _in_both(message: list[str], phrase: list[str]) -> float:
    """Returns how many words of the phrase match words of the message outside of its gaps; -inf if the phrase does not
    fit the beginning of the message.
    """
    if not phrase:
        return 0
    if not message:
        return -math.inf
    first = message[0]
    if "{}" not in first:
        return 1 + _in_both(message[1:], phrase[1:]) if first == phrase[0] else -math.inf
    if re.fullmatch(re.escape(first).replace(r"\{\}", ".*"), phrase[0]) is None:
        return -math.inf
    return max(_in_both(message[1:], phrase[1:]), _in_both(["{}", *message[1:]], phrase[1:]))


@pytest.mark.parametrize("page", QUOTES)
def test_quoted_messages_exist(page: str) -> None:
    """Each quote is in its page, and each phrase of it in one message of the library."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    for quote in QUOTES[page]:
        assert quote in text
        missing = [" ".join(phrase) for phrase in phrases(quote) if not any(contains(m, phrase) for m in messages())]
        assert [] == missing, f"{page} has a quote that is in no message"


def test_an_invented_message_is_found() -> None:
    """The comparison fails for words that no message has."""
    assert not any(contains(message, ["refused", "the", "login", "without", "a", "reason"]) for message in messages())
