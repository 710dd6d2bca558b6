"""`kconsumer completion`: prints a script that completes commands, options and their values in bash, zsh or fish.

The scripts are generated from the parsers, and do not start Python when they complete.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kconsumer.cli.parser import Parser
from kconsumer.config.options import OPTIONS
from kconsumer.groups import STATES, TYPES

# The values of options that are not choices of their parsers.
WORDS: Mapping[str, Sequence[str]] = {
    "--state": STATES,
    "--type": TYPES,
    "--from": ("earliest", "latest"),
    "--to": ("earliest", "latest"),
    "--format": ("text", "json"),
}
FILE_METAVARS = ("FILE", "SEGMENT", "FILE.parquet|FILE.arrow")


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand `completion SHELL`."""
    parser = commands.add_parser(
        "completion",
        parents=[common],
        help="print a script that completes this command in a shell",
        description="Print a script that completes commands, options and their values in a shell.",
        epilog="How to use it:\n"
        "  bash  echo 'source <(kconsumer completion bash)' >> ~/.bashrc\n"
        "  zsh   echo 'source <(kconsumer completion zsh)' >> ~/.zshrc  # after compinit\n"
        "  fish  kconsumer completion fish > ~/.config/fish/completions/kconsumer.fish",
    )
    parser.add_argument("shell", choices=sorted(SCRIPTS), metavar="bash|fish|zsh", help="the shell")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script of a shell."""
    root: Parser = args.root
    sys.stdout.write(SCRIPTS[args.shell](list(commands_of(root))))
    return 0


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command, or one of its positional arguments, which have no names."""

    names: tuple[str, ...]
    meaning: str
    metavar: str | None  # None: the option takes no value
    words: tuple[str, ...]  # the values to offer
    is_file: bool  # the value is the name of a file
    is_setting: bool  # the value is `key=value`, where key is an option of the consumer
    repeats: bool


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its options. `path` has the words after `kconsumer`, such as `groups list`."""

    path: str
    options: tuple[Option, ...]
    positional: Option | None
    subcommands: Mapping[str, str]  # name -> meaning

    @property
    def names(self) -> list[str]:
        """The names of all options."""
        return [name for option in self.options for name in option.names]


def commands_of(parser: Parser, path: str = "") -> Iterator[Command]:
    """Yield the command of a parser, and then those of its subcommands."""
    found = parser.subcommands()
    options = []
    positional = None
    for action in parser.arguments():
        if action.option_strings:
            options.append(_option(action))
        elif not found:
            positional = _option(action)
    meanings = {name: _short(command.description) for name, command in found.items()}
    yield Command(path, tuple(options), positional, meanings)
    for name, command in found.items():
        yield from commands_of(command, f"{path} {name}".strip())


def _option(action: argparse.Action) -> Option:
    names = tuple(action.option_strings)
    takes = action.metavar or action.dest
    words: Iterable[Any] = action.choices or next((WORDS[name] for name in names if name in WORDS), ())
    return Option(
        names,
        _short(action.help),
        None if action.nargs == 0 else str(takes),
        tuple(map(str, words)),
        str(takes) in FILE_METAVARS,
        "-X" in names,
        "may be repeated" in (action.help or ""),
    )


def _short(text: str | None) -> str:
    """Returns the first clause of a help text."""
    return re.split(r"; |: | \(|\. |\.$", " ".join((text or "").replace("%%", "%").split()))[0]


def _settings() -> str:
    return " ".join(f"{name}=" for name in OPTIONS)


def _known_paths(commands: Iterable[Command]) -> list[str]:
    """Returns the words that name a command, each after the words before it, as in ` groups` and `groups list`."""
    return [f"{path} {name}" for path, name in (_split(command.path) for command in commands) if name]


def _split(path: str) -> tuple[str, str]:
    before, _, name = path.rpartition(" ")
    return before, name


# --- bash ---

BASH = """\
# Completion of kconsumer for bash. Written by `kconsumer completion bash`.
_kconsumer() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command="" words="" i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$command ${{COMP_WORDS[i]}}" in
            {paths}) command="${{command:+$command }}${{COMP_WORDS[i]}}" ;;
        esac
    done
    if [[ $prev == "=" ]]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    if [[ $cur == "=" ]]; then cur=""; fi
    case "$command:$prev" in
{values}
    esac
    case "$command" in
{commands}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
_kconsumer_files() {{
    type compopt &>/dev/null && compopt -o filenames
    COMPREPLY=($(compgen -f -- "$1"))
}}
_kconsumer_settings() {{
    type compopt &>/dev/null && compopt -o nospace
    COMPREPLY=($(compgen -W "{settings}" -- "$1"))
}}
complete -F _kconsumer kconsumer
"""


def bash_script(commands: Sequence[Command]) -> str:
    """Returns the script for bash."""
    values = []
    cases = []
    for command in commands:
        for option in command.options:
            if option.metavar is None:
                continue
            patterns = "|".join(f'"{command.path}:{name}"' for name in option.names)
            values.append(f"        {patterns}) {_bash_action(option)}return ;;")
        words = " ".join([*command.subcommands, *(command.positional.words if command.positional else ())])
        offered = " ".join(command.names)
        if command.positional is not None and command.positional.is_file:
            files = '_kconsumer_files "$cur"; return'
            cases.append(f'        "{command.path}") if [[ $cur == -* ]]; then words="{offered}"; else {files}; fi ;;')
        elif words:
            line = f'if [[ $cur == -* ]]; then words="{offered}"; else words="{words}"; fi'
            cases.append(f'        "{command.path}") {line} ;;')
        else:
            cases.append(f'        "{command.path}") words="{offered}" ;;')
    return BASH.format(
        paths="|".join(f'"{path}"' for path in _known_paths(commands)),
        values="\n".join(values),
        commands="\n".join(cases),
        settings=_settings(),
    )


def _bash_action(option: Option) -> str:
    if option.is_file:
        return '_kconsumer_files "$cur"; '
    if option.is_setting:
        return '_kconsumer_settings "$cur"; '
    if option.words:
        return f'COMPREPLY=($(compgen -W "{" ".join(option.words)}" -- "$cur")); '
    return ""


# --- zsh ---

ZSH = """\
#compdef kconsumer
# Completion of kconsumer for zsh. Written by `kconsumer completion zsh`.
{functions}
_kconsumer_settings() {{
    local -a names=({settings})
    compadd -S '' -a names
}}
if [ "$funcstack[1]" = "_kconsumer" ]; then
    _kconsumer "$@"
else
    compdef _kconsumer kconsumer
fi
"""


def zsh_script(commands: Sequence[Command]) -> str:
    """Returns the script for zsh."""
    return ZSH.format(functions="\n".join(map(_zsh_function, commands)), settings=_settings())


def _zsh_name(path: str) -> str:
    return "_".join(["_kconsumer", *path.replace("-", "_").split()])


def _zsh_function(command: Command) -> str:
    """Returns the function that completes one command."""
    specs = [spec for option in command.options for spec in _zsh_specs(option)]
    name = _zsh_name(command.path)
    if not command.subcommands:
        if command.positional is not None:
            specs.append(f"'*:{command.positional.metavar}:{_zsh_action(command.positional)}'")
        return f"{name}() {{\n    _arguments -s \\\n        " + " \\\n        ".join(specs) + "\n}"
    specs += ["'1:command:->command'", "'*::argument:->arguments'"]
    described = "\n".join(f"            '{sub}:{_zsh_text(text)}'" for sub, text in command.subcommands.items())
    path = f"{command.path} " if command.path else ""
    cases = "\n".join(f"            {sub}) {_zsh_name(path + sub)} ;;" for sub in command.subcommands)
    return (
        f"{name}() {{\n    local curcontext=$curcontext state line\n    _arguments -C \\\n        "
        + " \\\n        ".join(specs)
        + f"\n    case $state in\n        command)\n            local -a found=(\n{described}\n            )\n"
        f"            _describe command found ;;\n        arguments)\n            case $words[1] in\n{cases}\n"
        "            esac ;;\n    esac\n}"
    )


def _zsh_specs(option: Option) -> Iterator[str]:
    """Yield what `_arguments` needs for each name of an option."""
    before = "*" if option.repeats else f"({' '.join(option.names)})"
    for name in option.names:
        value = ""
        if option.metavar is not None:
            name += "=" if name.startswith("--") else "+"
            value = f":{_zsh_text(option.metavar)}:{_zsh_action(option)}"
        yield f"'{before}{name}[{_zsh_text(option.meaning)}]{value}'"


def _zsh_action(option: Option) -> str:
    if option.is_file:
        return "_files"
    if option.is_setting:
        return "_kconsumer_settings"
    return f"({' '.join(option.words)})" if option.words else " "


def _zsh_text(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text).replace("'", "'\\''")


# --- fish ---

FISH = """\
# Completion of kconsumer for fish. Written by `kconsumer completion fish`.
function __kconsumer_at
    set -l found
    set -l words (commandline -opc)
    for word in $words[2..-1]
        if contains -- "$found $word" {paths}
            set found (string trim -- "$found $word")
        end
    end
    test "$found" = "$argv[1]"
end
complete -c kconsumer -f
{lines}
"""


def fish_script(commands: Sequence[Command]) -> str:
    """Returns the script for fish."""
    lines = []
    for command in commands:
        begin = f"complete -c kconsumer -n '__kconsumer_at \"{command.path}\"'"
        lines += [f"{begin} -a {name} -d {_quoted(text)}" for name, text in command.subcommands.items()]
        for option in command.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            lines.append(f"{begin} {names}{_fish_value(option)} -d {_quoted(option.meaning)}")
        if command.positional is not None and command.positional.is_file:
            lines.append(f"{begin} -F")
        elif command.positional is not None and command.positional.words:
            lines.append(f"{begin} -a {_quoted(' '.join(command.positional.words))}")
    paths = " ".join(f'"{path}"' for path in _known_paths(commands))
    return FISH.format(paths=paths, lines="\n".join(lines))


def _fish_value(option: Option) -> str:
    if option.metavar is None:
        return ""
    if option.is_file:
        return " -r -F"
    words = _settings() if option.is_setting else " ".join(option.words)
    return f" -x -a {_quoted(words)}" if words else " -x"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS: Mapping[str, Callable[[Sequence[Command]], str]] = {
    "bash": bash_script,
    "fish": fish_script,
    "zsh": zsh_script,
}
