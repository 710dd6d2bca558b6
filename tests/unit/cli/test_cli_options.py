"""Where the command takes options from: its own arguments, -X, questions, and files of Java properties."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from kconsumer.cli.arguments import UsageError, add_connection, with_settings
from kconsumer.cli.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("a = b c \n\n  d:e", {"a": "b c ", "d": "e"}),
        ("# a=b\n ! c=d\ne=#f", {"e": "#f"}),
        ("a=b\\\n   c\\\n   d", {"a": "bcd"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("path=C\\:\\\\x", {"path": "C:\\x"}),
        ("key=-----BEGIN KEY-----\\nabc=\\n-----END KEY-----", {"key": "-----BEGIN KEY-----\nabc=\n-----END KEY-----"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u00fc\\t", {"a": "ü\t"}),
        ("flag\nother value", {"flag": "", "other": "value"}),
        ("a=1\na=2", {"a": "2"}),
        ('jaas=Module required user="x" password="a=b";', {"jaas": 'Module required user="x" password="a=b";'}),
        ("a=b\\", {"a": "b"}),
        ("", {}),
    ],
)
def test_properties(text: str, found: dict[str, str]) -> None:
    """As `java.util.Properties` reads them."""
    assert found == parse_properties(text)


def options(*arguments: str, **own: object) -> dict[str, object]:
    """What a command line of these arguments gives a consumer."""
    parser = argparse.ArgumentParser()
    add_connection(parser)
    return with_settings(parser.parse_args(arguments), own, {"default_api_timeout_ms": 5})


def test_who_goes_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line, then -X, then what was typed, then the file, then defaults, under either spelling."""
    asked = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "typed"

    monkeypatch.setattr("getpass.getpass", ask)
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=f:1\nssl.key.password=filed\nclient.id=filed\ndefault.api.timeout.ms=7\n")
    assert {
        "bootstrap.servers": "f:1",
        "ssl_key_password": "typed",
        "client_id": "x",
        "default.api.timeout.ms": "7",
    } == options("-F", str(file), "-X", "client_id=x", "--ask", "ssl_key_password")
    assert ["ssl_key_password: "] == asked
    assert "c:1" == options("-b", "c:1", "-F", str(file))["bootstrap_servers"]
    file.write_text("metadata.broker.list=f:1\n")
    assert "f:1" == options("-F", str(file))["metadata.broker.list"]


@pytest.mark.parametrize("user", ["sasl_plain_username", "sasl.plain.username"])
def test_a_user_without_a_password(user: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a terminal the password is asked for, unless it is said somewhere; without one nobody can be asked."""
    monkeypatch.setattr("getpass.getpass", lambda prompt: f"answer to {prompt!r}")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    brokers = ("-b", "c:1", "-X", f"{user}=alice")
    assert "answer to 'password of alice: '" == options(*brokers)["sasl_plain_password"]
    assert "p" == options(*brokers, "-X", "sasl_plain_password=p")["sasl_plain_password"]
    assert "sasl_plain_password" not in options(*brokers, "-X", "sasl.jaas.config=x")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert "sasl_plain_password" not in options(*brokers)


def test_what_makes_no_sense(tmp_path: Path) -> None:
    """No brokers, two answers to one question, and a file that is none."""
    with pytest.raises(UsageError, match="which brokers"):
        options()
    with pytest.raises(UsageError, match="sets it already"):
        options("-X", "group_id=a", group_id="b")
    with pytest.raises(FileNotFoundError):
        options("-F", str(tmp_path / "missing"))
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(UsageError, match="no file of properties"):
        options("-F", str(tmp_path / "store.jks"))
