"""An argument parser whose help fits 80 columns, and whose errors are one line that names what may have been meant."""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from kconsumer.cli.arguments import UsageError

MIN_HELP_COLUMNS, MAX_HELP_COLUMNS = 20, 80
_INVALID_CHOICE = re.compile(r"argument (?P<name>\S+): invalid choice: '(?P<given>.*)' \(choose from (?P<known>.*)\)")
_MAYBE = re.compile(r", maybe you meant '.*'\?")  # of Python 3.15, in the message of an invalid choice
# Options of Kafka's own tools -> what this command has instead.
OTHER_TOOLS = {
    "--all-topics": "no --topic",
    "--by-duration": "--to -1h",
    "--consumer-property": "-X",
    "--consumer.config": "--config",
    "--command-config": "--config",
    "--from-beginning": "--from earliest",
    "--max-messages": "--count",
    "--offset": "--from",
    "--property": "--format",
    "--shift-by": "--shift",
    "--to-datetime": "--to @TIMESTAMP",
    "--to-earliest": "--to earliest",
    "--to-latest": "--to latest",
    "--to-offset": "--to OFFSET",
}


def suggestion(text: str, known: Iterable[str]) -> str:
    """Returns `; did you mean X?` for the most similar of the known words, or nothing if none is similar."""
    found = difflib.get_close_matches(text, known, n=1)
    return f"; did you mean {found[0]}?" if found else ""


class Help(argparse.RawDescriptionHelpFormatter):
    """Formats help for at most 80 columns. Parser has split the description and the epilog into lines already."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"width": help_width(), **options})


def help_width() -> int:
    """Returns the width of help, in columns. The two last columns of a terminal stay empty, as in other help."""
    return max(MIN_HELP_COLUMNS, min(shutil.get_terminal_size().columns, MAX_HELP_COLUMNS)) - 2


def fill(text: str) -> str:
    """Split paragraphs into lines. Indented lines, such as examples, are kept as they are."""
    width = help_width()
    return "\n".join(line if line.startswith(" ") else textwrap.fill(line, width) for line in text.split("\n"))


class Once(argparse.Action):
    """Stores the value of an argument. An option that is given twice is an error, as in Kafka's own tools."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        given = vars(namespace).setdefault("given", set())
        if option is not None and self.dest in given:
            raise argparse.ArgumentError(self, "it can be given once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError. Its values have an attribute `parser`: the parser of the subcommand."""

    def __init__(self, *args: Any, **options: Any) -> None:
        texts = {name: fill(options[name]) for name in ("description", "epilog") if options.get(name)}
        super().__init__(*args, **{"formatter_class": Help, **options, **texts})
        self.register("action", None, Once)
        self.set_defaults(parser=self)

    def subcommands(self) -> dict[str, Parser]:
        """Returns the parsers of the commands or actions by name. Empty if this parser has none."""
        choices = [action.choices for action in self._actions if isinstance(action.choices, dict)]
        return {name: found for known in choices for name, found in known.items() if isinstance(found, Parser)}

    def arguments(self) -> list[argparse.Action]:
        """Returns the options and positional arguments, in the order of the help."""
        return list(self._actions)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with the message of argparse, and with a suggestion if a word is misspelled."""
        message = _MAYBE.sub("", message)
        found = _INVALID_CHOICE.fullmatch(message)
        if found is not None:
            given, known = found["given"], re.findall(r"[\w.-]+", found["known"])
            if found["name"] in ("COMMAND", "ACTION"):
                what = f"{given!r} is not {'an action' if found['name'] == 'ACTION' else 'a command'}"
                message = what + (suggestion(given, known) or f"; choose from {', '.join(known)}")
            else:
                message += suggestion(given, known)
        elif message.startswith("the following arguments are required"):
            message += f"; see {self.prog} --help"
        raise UsageError(message, self.prog)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Raise UsageError for arguments that this parser does not have."""
        options = [text.partition("=")[0] for text in unknown if text.startswith("-")]
        if not options:
            self.error(f"unexpected argument {unknown[0]!r}; see {self.prog} --help")
        name = options[0]
        own = [text for action in self._actions for text in action.option_strings]
        other = OTHER_TOOLS.get(name)
        hint = f"; did you mean {other}?" if other else suggestion(name, own)
        self.error(f"unknown option {name}{hint or f'; see {self.prog} --help'}")


def join_negative_values(arguments: Sequence[str]) -> list[str]:
    """Join an option and its negative value, as in `--from -1h`. Without it, argparse takes the value for an option."""
    joined: list[str] = []
    for text in arguments:
        before = joined[-1] if joined else ""
        if re.match(r"-[0-9]", text) and re.fullmatch(r"--[a-z][a-z-]*", before):
            joined[-1] = f"{before}={text}"
        else:
            joined.append(text)
    return joined
