"""The manifest of docs/guides/kubernetes.md: the command accepts its arguments, and they fit the grace period."""

from __future__ import annotations

import json
import re
from typing import Any

from kconsumer import cli
from kconsumer.cli.work import CLOSE_S
from kconsumer.parallel.handover import EXIT_TIMEOUT_S
from kconsumer.parallel.run_state import MIN_COMMIT_TIMEOUT_S
from kconsumer.parallel.settings import Settings
from support.harnesses.doc_blocks import BLOCKS

KUBERNETES_GRACE_S = 30  # if a manifest does not say it
LINE = re.compile(r"(?P<indent> *(?:- )?)(?P<key>\w+):(?: (?P<value>.+))?")


def manifest() -> dict[str, Any]:
    """Returns the values of the manifest, by their paths.

    It reads the part of YAML that the manifest uses: nested mappings, lists of mappings, and values as in JSON.
    """
    [block] = [block for block in BLOCKS if block.language == "yaml"]
    found: dict[str, Any] = {}
    path: list[tuple[int, str]] = []  # the keys above a line, with their indentation
    for line in block.text.splitlines():
        match = LINE.fullmatch(line)
        assert match is not None, line
        indent, value = len(match["indent"]), match["value"]
        assert indent % 2 == 0
        path = [*(item for item in path if item[0] < indent), (indent, match["key"])]
        if value is not None:
            found[".".join(key for _, key in path)] = json.loads(value) if value[0] in '[{"0123456789' else value
    return found


def test_the_manifest_of_a_worker() -> None:
    """Labels agree, the arguments are accepted, and SIGKILL comes after the drain, the last commit and the close."""
    found = manifest()
    pod = "spec.template.spec"
    assert ("apps/v1", "Deployment") == (found["apiVersion"], found["kind"])
    assert found["spec.selector.matchLabels"] == found["spec.template.metadata.labels"]
    program, *words = [*found[f"{pod}.containers.command"], *found[f"{pod}.containers.args"]]
    args = cli.parse(words)
    assert ("kconsumer", "worker:handle") == (program, args.handler)
    assert ["test", "-e", str(args.ready_file)] == found[f"{pod}.containers.readinessProbe.exec.command"]
    ending_s = MIN_COMMIT_TIMEOUT_S + EXIT_TIMEOUT_S + CLOSE_S
    assert found[f"{pod}.terminationGracePeriodSeconds"] >= args.drain_timeout_s + ending_s
    assert KUBERNETES_GRACE_S >= Settings().drain_timeout_s + MIN_COMMIT_TIMEOUT_S + CLOSE_S
