"""One interpreter of a process can import kconsumer; another one gets an ImportError that says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kconsumer

FOLDER = str(Path(str(kconsumer.__file__)).parents[1])
"""Where this process imports kconsumer from, and where both interpreters of a test must. Only the first one has the
working directory on its import path: there it may find a copy that is not the one which is installed, and the second
interpreter would then import the installed copy without an error."""
IMPORT = """
try:
    import kconsumer
except ImportError as error:
    print(error, flush=True)
else:
    print("imported", kconsumer.__file__, flush=True)
"""
# How a second interpreter is created: sharing the GIL, as mod_wsgi does, or with its own, as `concurrent.interpreters`.
if sys.version_info >= (3, 13):
    MODULE, CREATE, RUN = "_interpreters", {"shared": 'create("legacy")', "own": 'create("isolated")'}, "exec"
else:
    MODULE, CREATE, RUN = "_xxsubinterpreters", {"shared": "create(isolated=False)"}, "run_string"
    if sys.version_info >= (3, 12):
        CREATE["own"] = "create()"


@pytest.mark.parametrize("gil", CREATE)
def test_a_second_interpreter_is_refused(gil: str, tmp_path: Path) -> None:
    """The import in the second interpreter raises ImportError; the first one continues to work."""
    code = f"""
import {MODULE} as interpreters
from kconsumer import decode_batches
from kconsumer.testing.batches import build_batch
second = interpreters.{CREATE[gil]}
interpreters.{RUN}(second, {IMPORT!r})
interpreters.destroy(second)
print([record.value for record in decode_batches(build_batch([b"x"]))], flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": FOLDER}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)
    refusal, works = done.stdout.splitlines()
    assert "only be loaded into one interpreter" in refusal or "does not support loading in subinterpreters" in refusal
    assert "[b'x']" == works
