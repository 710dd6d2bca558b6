"""The sources of options of the command: arguments, -X, prompts, and Java properties files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from kconsumer.cli.arguments import UsageError, add_connection, with_settings
from kconsumer.cli.properties import parse_properties
from kconsumer.config.token_providers import NamedProvider


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
    """Properties are parsed as `java.util.Properties` parses them."""
    assert found == parse_properties(text)


def options(*arguments: str, **own: object) -> dict[str, object]:
    """Returns the options that a consumer gets from these arguments."""
    parser = argparse.ArgumentParser()
    add_connection(parser)
    return with_settings(parser.parse_args(arguments), own, {"default_api_timeout_ms": 5})


def test_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments, -X and prompts override the file, and the file overrides defaults, under either spelling."""
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
    file.write_text("bootstrap.servers=f:1\n", "utf-8-sig")  # as editors on Windows write it
    assert "f:1" == options("-F", str(file))["bootstrap.servers"]


@pytest.mark.parametrize("user", ["sasl_plain_username", "sasl.plain.username"])
def test_a_user_without_a_password(user: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a terminal a missing password is prompted for; without a terminal it is not."""
    monkeypatch.setattr("getpass.getpass", lambda prompt: f"typed for {prompt!r}")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    brokers = ("-b", "c:1", "-X", f"{user}=alice")
    assert "typed for 'password of alice: '" == options(*brokers)["sasl_plain_password"]
    assert "p" == options(*brokers, "-X", "sasl_plain_password=p")["sasl_plain_password"]
    assert "sasl_plain_password" not in options(*brokers, "-X", "sasl.jaas.config=x")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert "sasl_plain_password" not in options(*brokers)


def test_a_prompt_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """--ask is a usage error if standard input has ended."""

    def ask(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("getpass.getpass", ask)
    with pytest.raises(UsageError, match="ssl_key_password: nothing was entered"):
        options("-b", "c:1", "--ask", "ssl_key_password")


def test_modules_of_the_present_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token provider may be a function of a module in the folder in which the command is called."""
    (tmp_path / "tokens_of_mine.py").write_text("def token() -> str:\n    return 'x'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [folder for folder in sys.path if folder])
    name = options("-b", "c:1", "-X", "sasl_oauth_token_provider=tokens_of_mine:token")["sasl_oauth_token_provider"]
    assert "x" == NamedProvider(str(name))()


def test_usage_errors(tmp_path: Path) -> None:
    """A missing broker, an option that is set twice and a file that is not text are usage errors."""
    with pytest.raises(UsageError, match="no brokers"):
        options()
    with pytest.raises(UsageError, match="sets this option already"):
        options("-X", "group_id=a", group_id="b")
    with pytest.raises(FileNotFoundError):
        options("-F", str(tmp_path / "missing"))
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(UsageError, match="not a properties file"):
        options("-F", str(tmp_path / "store.jks"))
