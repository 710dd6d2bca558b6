"""The argument parser of the command: errors of one line that say what may have been meant, and help of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kconsumer import cli
from kconsumer.cli.parser import Parser


def parsers(parser: Parser) -> Iterator[Parser]:
    """Yield a parser and those of all its commands and actions."""
    yield parser
    for found in parser.subcommands().values():
        yield from parsers(found)


COMMANDS = [parser.prog for parser in parsers(cli.build_parser())]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "kconsumer: the following arguments are required: COMMAND; see kconsumer --help"),
        ("consum t", "kconsumer: 'consum' is not a command; did you mean consume?"),
        ("groups lst", "kconsumer groups: 'lst' is not an action; did you mean list?"),
        ("topics zzz", "kconsumer topics: 'zzz' is not an action; choose from list, describe"),
        ("consume", "kconsumer consume: the following arguments are required: TOPIC; see kconsumer consume --help"),
        ("consume t --cuont 3", "kconsumer consume: unknown option --cuont; did you mean --count?"),
        ("consume t --cuont=3", "kconsumer consume: unknown option --cuont; did you mean --count?"),
        ("consume t --zzz", "kconsumer consume: unknown option --zzz; see kconsumer consume --help"),
        ("consume t --from-beginning", "unknown option --from-beginning; did you mean --from earliest?"),
        ("topics list t", "kconsumer topics list: unexpected argument 't'; see kconsumer topics list --help"),
        ("groups lag --state stabel", "Reconciling, NotReady, Dead; did you mean stable?"),
        ("groups lag -f jsn", "; did you mean json?"),
        ("consume t -n", "kconsumer consume: argument -n/--count: expected one argument"),
    ],
)
def test_errors(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong command line gives exit code 2 and one line, which begins with the command that has the error."""
    assert 2 == cli.main(arguments.split())
    out, err = capsys.readouterr()
    assert ("", 1, True) == (out, err.count("\n"), err.startswith("kconsumer"))
    assert err.endswith(f"{message}\n")


@pytest.mark.parametrize("columns", ["1", "2", "21"])
def test_narrow_terminals(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command works on a terminal that is too narrow for its help."""
    monkeypatch.setenv("COLUMNS", columns)
    assert 0 == cli.main(["consume", "--help"])


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The help of every command fits 80 columns, also on a wider terminal, and describes every argument."""
    monkeypatch.setenv("COLUMNS", columns)
    assert 0 == cli.main([*command.split()[1:], "--help"])
    text = capsys.readouterr().out
    assert [] == [line for line in text.splitlines() if len(line) > 80]
    assert text.startswith(f"usage: {command} ")
    (parser,) = [found for found in parsers(cli.build_parser()) if found.prog == command]
    undescribed = [action.dest for action in parser._actions if not action.help and not action.choices]
    assert ([], True) == (undescribed, bool(parser.description))
