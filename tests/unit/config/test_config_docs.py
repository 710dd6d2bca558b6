"""No option is ignored, and messages name no page of the documentation."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from kconsumer.config import token_providers
from kconsumer.config.options import OPTIONS

ROOT = Path(__file__).parents[3]
# Options without an effect: metrics are not pushed to brokers, and all metrics have the lowest recording level.
WITHOUT_EFFECT = {"metrics_recording_level"}


def test_no_option_is_ignored() -> None:
    """Every option that accepts more than its default is read by code outside the table."""
    table = {"options.py", "signature.py"}
    sources = [path for path in (ROOT / "kconsumer").rglob("*.py") if path.name not in table]
    read = set(
        re.findall(
            r'(?:config|limits)\.(?:(?:secret|refers)\(")?(\w+)',
            "\n".join(path.read_text(encoding="utf-8") for path in sources),
        )
    )
    if "read_committed" in read:  # the property that the code reads instead
        read.add("isolation_level")
    read.update(token_providers.OPTIONS)  # each becomes a token provider
    assert WITHOUT_EFFECT == {name for name in OPTIONS if name not in read}


def test_messages_name_no_page() -> None:
    """No message refers to a page of docs/, which is not in the wheel, or to an extra of a package that is not on an
    index.
    """
    found, reference = [], re.compile(r"\bdocs/|kconsumer\[")
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "kconsumer").rglob("*.py")}
    for path in filter(lambda path: reference.search(texts[path]), texts):
        tree = ast.parse(texts[path])
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            (path.name, node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            if reference.search(node.value)
        ]
    assert [] == found
