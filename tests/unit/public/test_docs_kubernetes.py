"""The manifests of docs/guides/kubernetes.md: the command accepts its arguments, and they fit the grace period; the
probes of a file find what is in it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kconsumer import cli
from kconsumer.cli.work import CLOSE_S
from kconsumer.health import write
from kconsumer.parallel.handover import EXIT_TIMEOUT_S
from kconsumer.parallel.run_state import MIN_COMMIT_TIMEOUT_S
from kconsumer.parallel.settings import Settings
from kconsumer.testing import MockConsumer
from support.harnesses.doc_blocks import BLOCKS

KUBERNETES_GRACE_S = 30  # if a manifest does not say it
LINE = re.compile(r"(?P<indent> *(?:- )?)(?P<key>\w+):(?: (?P<value>.+))?")


MANIFEST, FILE_PROBES = [block for block in BLOCKS if block.language == "yaml"]


def parsed(text: str) -> dict[str, Any]:
    """Returns the values of a manifest, by their paths.

    It reads the part of YAML that the manifest uses: nested mappings, lists of mappings, and values as in JSON.
    """
    found: dict[str, Any] = {}
    path: list[tuple[int, str]] = []  # the keys above a line, with their indentation
    for line in text.splitlines():
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
    found = parsed(MANIFEST.text)
    pod = "spec.template.spec"
    assert ("apps/v1", "Deployment") == (found["apiVersion"], found["kind"])
    assert found["spec.selector.matchLabels"] == found["spec.template.metadata.labels"]
    program, *words = [*found[f"{pod}.containers.command"], *found[f"{pod}.containers.args"]]
    args = cli.parse(words)
    assert ("kconsumer", "worker:handle") == (program, args.handler)
    for probe, path in (("livenessProbe", "/live"), ("readinessProbe", "/ready")):
        assert {"path": path, "port": args.health_port} == found[f"{pod}.containers.{probe}.httpGet"]
        assert found[f"{pod}.containers.{probe}.timeoutSeconds"] >= 1
    assert "0.0.0.0" == args.health_host
    ending_s = MIN_COMMIT_TIMEOUT_S + EXIT_TIMEOUT_S + CLOSE_S
    assert found[f"{pod}.terminationGracePeriodSeconds"] >= args.drain_timeout_s + ending_s
    assert KUBERNETES_GRACE_S >= Settings().drain_timeout_s + MIN_COMMIT_TIMEOUT_S + CLOSE_S


@pytest.mark.parametrize(("state", "codes"), [("old", (1, 1)), ("live", (0, 1)), ("ready", (0, 0)), ("none", (1, 1))])
def test_the_probes_of_a_file(state: str, codes: tuple[int, int], tmp_path: Path) -> None:
    """They succeed if the content says so, and if it is not older than a minute."""
    path, found = tmp_path / "health", parsed(FILE_PROBES.text)
    if state != "none":
        with MockConsumer("t", group_id="g") as consumer:
            if state != "live":
                consumer.rebalance([("t", 0)])
                consumer.poll(0.0)
            write(consumer, path).close()
    if state == "old":
        os.utime(path, (0, 0))
    results = []
    for probe in ("livenessProbe", "readinessProbe"):
        command = [part.replace("/tmp/health", str(path)) for part in found[f"{probe}.exec.command"]]
        results.append(subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode)
    assert codes == tuple(map(bool, results))
