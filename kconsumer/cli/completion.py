"""`kconsumer completion`: prints a script with which bash, zsh or fish let this command complete command lines.

The package argcomplete writes the scripts, and completes from the parsers. This module adds what the parsers do not
say.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kconsumer.cli.arguments import UsageError
from kconsumer.cli.parser import Parser
from kconsumer.config.options import OPTIONS
from kconsumer.groups import STATES, TYPES

SHELLS = ("bash", "fish", "zsh")
# The values of options that are not choices of their parsers.
WORDS: Mapping[str, Sequence[str]] = {
    "--state": STATES,
    "--type": TYPES,
    "--from": ("earliest", "latest"),
    "--to": ("earliest", "latest"),
    "--format": ("text", "json"),
    "-X": [f"{name}=" for name in OPTIONS],
}
FILE_METAVARS = ("FILE", "SEGMENT", "FILE.parquet|FILE.arrow")


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand `completion SHELL`."""
    parser = commands.add_parser(
        "completion",
        parents=[common],
        help="print a script that completes this command in a shell",
        description="Print a script that completes commands, options and their values in a shell. It needs the "
        "package argcomplete (the extra `cli`).",
        epilog="How to use it:\n"
        "  bash  echo 'source <(kconsumer completion bash)' >> ~/.bashrc\n"
        "  zsh   echo 'source <(kconsumer completion zsh)' >> ~/.zshrc  # after compinit\n"
        "  fish  kconsumer completion fish > ~/.config/fish/completions/kconsumer.fish",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="bash|fish|zsh", help="the shell")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script of a shell."""
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise UsageError("completion needs argcomplete: install the extra cli") from None
    sys.stdout.write(shellcode(["kconsumer"], shell=args.shell) + "\n")
    return 0


def complete(parser: Parser) -> None:
    """Write what completes the command line of a shell, and exit. Does nothing unless a script of `run` has started
    this process."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    import argcomplete
    from argcomplete.completers import ChoicesCompleter, FilesCompleter, SuppressCompleter

    for action in actions(parser):
        # argcomplete reads the attribute `completer`, which argparse does not declare.
        words = next((WORDS[name] for name in action.option_strings if name in WORDS), None)
        if words is not None:
            action.completer = ChoicesCompleter(words)  # type: ignore[attr-defined, arg-type]
        elif action.metavar in FILE_METAVARS:
            action.completer = FilesCompleter()  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False, default_completer=SuppressCompleter())


def actions(parser: Parser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its subcommands."""
    yield from parser.arguments()
    for command in parser.subcommands().values():
        yield from actions(command)
