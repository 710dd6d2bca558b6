"""Code blocks of the documentation: that all are found, and those that need neither a broker nor Spark.

tests/integration/test_docs.py runs the others against a broker, tests/spark/test_spark_docs.py in a Spark session.
"""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest

from kconsumer import cli
from support.harnesses.doc_blocks import BLOCKS, PAGES, ROOT, Block, indented_blocks
from support.simulation.__main__ import parser as simulation_parser

# The languages of blocks. `text` and `mermaid` are not code. tests/integration/test_migration.py runs the one in Java.
LANGUAGES = {"python", "sh", "console", "toml", "yaml", "java", "text", "mermaid"}

# Blocks that tests do not run: page, how the block begins, and why.
NOT_RUN = {
    ("README.md", "kconsumer fake-cluster"): "serves until Ctrl-C; docs/start.md, whose commands run, has it too",
    ("docs/guides/security-recipes.md", "from kconsumer"): "needs Kerberos; tox -e kerberos tests the mechanism",
    ("docs/guides/security-recipes.md", "kconsumer topics"): "needs a broker with TLS under the name kafka.example",
    ("docs/security.md", "kconsumer consume"): "needs a broker with TLS under the name kafka.example",
    ("docs/security.md", "keytool"): "needs Java key stores",
    ("docs/spark.md", "unzip"): "needs a wheel and a Spark cluster; tests/spark/test_spark_cluster.py does the same",
}

SHELL = [block for block in BLOCKS if block.language == "sh"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def commands(block: Block) -> list[list[str]]:
    """Returns the words of each command, without comments, variables and what follows a pipe or `&&`."""
    found = []
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        if words:
            found.append(words)
    return found


def test_every_block_is_found_and_known() -> None:
    """Every code block is fenced and names a language; those that do not run are listed here, each with its reason."""
    assert {} == {page: found for page in PAGES if (found := indented_blocks(page))}
    assert set() == {(block.name, block.language) for block in BLOCKS if block.language not in LANGUAGES}
    marked = {(block.page, start) for block in BLOCKS if not block.runs for start in [*_starts(block)]}
    assert set(NOT_RUN) == marked


def _starts(block: Block) -> list[str]:
    """Returns the beginnings in NOT_RUN that fit the block, or its own first line."""
    fitting = [start for page, start in NOT_RUN if page == block.page and block.text.startswith(start)]
    return fitting or [block.text.partition("\n")[0]]


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.name)
def test_shell_commands_name_what_exists(block: Block) -> None:
    """Targets of make, extras of pip, environments of tox, test files, examples and options of the command exist."""
    for words in commands(block):
        check = CHECKS.get(words[0])
        assert check is not None or not block.runs, f"{words[0]}: unknown command"
        if check is not None:
            check(words)


def check_make(words: list[str]) -> None:
    """Check that the target is in the Makefile."""
    targets = [word for word in words[1:] if "=" not in word]
    assert [] == [word for word in targets if f"\n{word}:" not in MAKEFILE]


def check_pip(words: list[str]) -> None:
    """Check that the command installs this project, from a checkout or a wheel file, with extras that exist."""
    extras = re.fullmatch(r"(?:\.|\./kconsumer-[\w.-]+\.whl)(?:\[(.*)\])?", words[2])
    assert words[1] == "install"
    assert extras is not None
    assert set() == set(filter(None, (extras[1] or "").split(","))) - set(PROJECT["project"]["optional-dependencies"])


def check_pytest(words: list[str]) -> None:
    """Check that the files and folders exist."""
    paths = [word for word in words if word.startswith("tests/")]
    assert paths
    assert [] == [path for path in paths if not (ROOT / path).exists()]


def check_python(words: list[str]) -> None:
    """Check that the module or file exists; other tests run them."""
    path = words[2].replace(".", "/") if words[1] == "-m" else words[1]
    assert (ROOT / path).exists() or (ROOT / f"{path}.py").exists()


def check_tox(words: list[str]) -> None:
    """Check that the environment is in tox.ini or consists of its factors."""
    name = words[words.index("-e") + 1]
    known = re.findall(r"^\[testenv:(.*)\]$", (ROOT / "tox.ini").read_text(encoding="utf-8"), re.MULTILINE)
    assert name in known


def check_kconsumer(words: list[str]) -> None:
    """Check that the command accepts these arguments."""
    assert cli.parse(words[1:]) is not None


def check_simulate(words: list[str]) -> None:
    """Check that the command of developers accepts these arguments."""
    assert simulation_parser().parse_args(words[1:]) is not None


CHECKS = {
    "tools/kconsumer-simulate": check_simulate,
    "make": check_make,
    "pip": check_pip,
    "pytest": check_pytest,
    "python": check_python,
    "tox": check_tox,
    "kconsumer": check_kconsumer,
}


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "toml"], ids=lambda block: block.name)
def test_toml_is_that_of_the_tree(block: Block) -> None:
    """An entry point is that of the example distribution; the keys and values of a pipeline are accepted.

    A block with a part of a pipeline replaces sections of the first block of the page.
    """
    document = tomllib.loads(block.text)
    if "project" in document:
        example = tomllib.loads((ROOT / "examples/custom_assignor/pyproject.toml").read_text(encoding="utf-8"))
        assert example["project"]["entry-points"] == document["project"]["entry-points"]
    else:
        from kconsumer.spark.pipeline.settings import parse

        if "source" not in document:
            first = next(each for each in BLOCKS if each.page == block.page and each.language == "toml")
            whole = tomllib.loads(first.text)
            del whole["aggregate"]
            document = {**whole, **document}
        sink = parse(document).sink
        assert (document["sink"].get("path"), document["sink"].get("table")) == (sink.path, sink.table)
