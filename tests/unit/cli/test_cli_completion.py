"""Completion of command lines, by bash with the script that the command prints."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kconsumer import cli
from kconsumer.cli.completion import FILE_METAVARS, SHELLS, WORDS, actions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the command `kconsumer`, its script for bash and a file."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "data.log").write_text("")
    command = folder / "kconsumer"
    command.write_text(f"#!{sys.executable}\nimport sys\nfrom kconsumer import cli\nsys.exit(cli.main())\n")
    command.chmod(0o755)
    script = subprocess.run([command, "completion", "bash"], check=True, capture_output=True, text=True).stdout
    (folder / "script").write_text(script)
    return folder


def completed(folder: Path, line: str) -> set[str]:
    """Returns what bash offers for the last word of a command line. A trailing blank begins a new word."""
    commands = (
        f"source script; COMP_LINE='{line}' COMP_POINT={len(line)} COMP_TYPE=9; _python_argcomplete kconsumer; "
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    command = ["bash", "--norc", "-c", commands]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=environment)
    return {word.strip() for word in done.stdout.splitlines()}


@pytest.mark.parametrize(
    ("line", "offered", "others"),
    [
        (
            "kconsumer ",
            {"consume", "work", "groups", "topics", "assignors", "dump", "fake-cluster", "completion"},
            {"members"},
        ),
        ("kconsumer groups ", {"list", "describe", "members", "offsets", "lag", "reset", "delete"}, {"consume"}),
        ("kconsumer consume t --ex", {"--exit-at-end"}, {"--from"}),
        ("kconsumer groups reset g --to ", {"earliest", "latest"}, {"--execute", "data.log"}),
        ("kconsumer groups list --state R", {"Reconciling"}, {"Stable"}),
        ("kconsumer groups list --format=j", {"json"}, {"text"}),
        ("kconsumer consume t -X max_poll", {"max_poll_records=", "max_poll_interval_ms="}, {"check_crcs="}),
        ("kconsumer completion ", {"bash", "fish", "zsh"}, {"consume"}),
        ("kconsumer dump da", {"data.log"}, {"consume"}),
        ("kconsumer consume da", set(), {"data.log"}),
    ],
)
def test_completion(line: str, offered: set[str], others: set[str], folder: Path) -> None:
    """Commands, actions, options, their values and files are offered where they belong."""
    shown = completed(folder, line)
    assert (offered, set()) == (offered & shown, others & shown)


def test_every_name_has_an_argument() -> None:
    """The options and values that have completions of their own are options and values of some command."""
    known = list(actions(cli.build_parser()))
    assert set() == set(WORDS) - {name for action in known for name in action.option_strings}
    assert set() == set(FILE_METAVARS) - {action.metavar for action in known}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`kconsumer completion` prints the script of each shell."""
    assert 0 == cli.main(["completion", shell])
    assert "kconsumer" in capsys.readouterr().out


def test_another_shell(capsys: pytest.CaptureFixture[str]) -> None:
    """A shell without a script is a usage error."""
    assert 2 == cli.main(["completion", "csh"])
    assert "invalid choice: 'csh'" in capsys.readouterr().err


def test_without_argcomplete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without argcomplete, the command says which extra to install."""
    real = builtins.__import__

    def refuse(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("argcomplete"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert 2 == cli.main(["completion", "bash"])
    assert "install the extra cli" in capsys.readouterr().err
