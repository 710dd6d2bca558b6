"""Completion scripts, run by the shells that are installed; bash always is."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kconsumer import cli
from kconsumer.cli.completion import SCRIPTS, commands_of

LIMIT_S = 30.0
INSTALLED = [shell for shell in sorted(SCRIPTS) if shutil.which(shell)]


def test_bash_is_installed() -> None:
    """At least one shell runs its script in these tests."""
    assert "bash" in INSTALLED


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The script of each shell, in a file."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "data.log").write_text("")
    commands = list(commands_of(cli.build_parser()))
    paths = {}
    for shell, script in SCRIPTS.items():
        paths[shell] = folder / f"kconsumer.{shell}"
        paths[shell].write_text(script(commands))
    return paths


def bash(script: Path, line: str) -> set[str]:
    """Returns what bash offers for the last word of a command line. A trailing blank begins a new word."""
    words = [word for word in re.split(r"(=)|\s+", line) if word is not None]
    variables = f"COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}"
    # bash itself refuses `compopt` outside of a completion.
    commands = f"compopt() {{ :; }}; source {script}; {variables}; _kconsumer; echo ${{COMPREPLY[@]}}"
    command = ["bash", "--norc", "-c", commands]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=script.parent)
    assert "" == done.stderr
    return set(done.stdout.split())


def fish(script: Path, line: str) -> set[str]:
    """Returns what fish offers for the last word of a command line."""
    command = ["fish", "-c", f"source {script}; complete -C '{line}'"]
    environment = {**os.environ, **dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(script.parent))}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=script.parent, env=environment)
    assert "" == done.stderr
    return {offered.partition("\t")[0].removeprefix("--format=") for offered in done.stdout.splitlines()}


def zsh(script: Path, line: str) -> set[str]:
    """Returns what zsh lists for the last word of a command line, in a terminal."""
    main, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "HOME": str(script.parent), "COLUMNS": "200"}
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
        cwd=script.parent,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        setup = f"autoload -U compinit; compinit -D -u; source {script}; bindkey '^X' list-choices; echo LOA''DED\n"
        os.write(main, setup.encode())
        read_until_quiet(main, "LOADED\r\n")
        os.write(main, f"{line}\x18".encode())
        text = read_until_quiet(main, "\n")
    finally:
        shell.kill()
        shell.wait()
        os.close(main)
    return set(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", " ", text).partition("\n")[2].split())


def read_until_quiet(descriptor: int, text: str) -> str:
    """Returns what a terminal shows, until it has shown this text and then nothing for a moment."""
    deadline = time.monotonic() + LIMIT_S
    found = ""
    while time.monotonic() < deadline:
        if select.select([descriptor], [], [], 0.3)[0]:
            found += os.read(descriptor, 65_536).decode(errors="replace")
        elif text in found:
            return found
    raise AssertionError(f"the terminal did not show {text!r}, but {found!r}")


SHELLS: dict[str, Callable[[Path, str], set[str]]] = {"bash": bash, "fish": fish, "zsh": zsh}
CASES: list[tuple[str, set[str], set[str]]] = [
    ("kconsumer ", {"consume", "groups", "topics", "assignors", "dump", "fake-cluster", "completion"}, {"members"}),
    (
        "kconsumer groups ",
        {"list", "describe", "members", "offsets", "lag", "reset", "delete-offsets", "delete"},
        {"consume"},
    ),
    ("kconsumer consume t --ex", {"--exit-at-end"}, {"--from"}),
    ("kconsumer groups reset g --to ", {"earliest", "latest"}, {"--execute"}),
    ("kconsumer groups list --state R", {"Reconciling"}, {"Stable"}),
    ("kconsumer groups list --format=j", {"json"}, {"text"}),
    ("kconsumer consume t -X max_poll", {"max_poll_records=", "max_poll_interval_ms="}, {"check_crcs="}),
    ("kconsumer completion ", {"bash", "fish", "zsh"}, {"consume"}),
    ("kconsumer dump da", {"data.log"}, {"consume"}),
]


@pytest.mark.parametrize(("line", "offered", "others"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("shell", INSTALLED)
def test_completion(shell: str, line: str, offered: set[str], others: set[str], scripts: dict[str, Path]) -> None:
    """Commands, actions, options, their values and files are offered where they belong."""
    shown = SHELLS[shell](scripts[shell], line)
    assert (offered, set()) == (offered & shown, others & shown)


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_the_command_prints_the_script(
    shell: str, scripts: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """`kconsumer completion` prints the script of a shell, which has every option of every command."""
    assert 0 == cli.main(["completion", shell])
    script = capsys.readouterr().out
    assert scripts[shell].read_text() == script
    names = {name for command in commands_of(cli.build_parser()) for name in command.names if name.startswith("--")}
    written = {f"-l {name[2:]}" if shell == "fish" else name for name in names}
    assert set() == {text for text in written if text not in script}


def test_another_shell(capsys: pytest.CaptureFixture[str]) -> None:
    """A shell without a script is a usage error."""
    assert 2 == cli.main(["completion", "csh"])
    assert "invalid choice: 'csh'" in capsys.readouterr().err
