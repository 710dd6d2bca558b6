"""A real schema registry with Confluent's interface: Apicurio Registry, which Maven fetches into the cache of brokers.

Its newer releases need a newer Java than the brokers of the tests.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.brokers.kafka_jars import cache_root, locked, program

VERSION = "2.6.13.Final"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
DEADLINE_S = 90


def installation() -> Path:
    """Returns the folder of the server. The first use downloads it (150 MB)."""
    folder = cache_root() / f"apicurio-{VERSION}"
    if not folder.is_dir():
        with locked(cache_root() / f"apicurio-{VERSION}.lock"):
            if not folder.is_dir():
                _download(folder)
    return folder


def _download(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-part-") as part:
        command = [program("mvn"), "-q", "-B", PLUGIN, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={part}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        archives = list(Path(part).glob("*.tar.gz"))
        if done.returncode or not archives:
            raise RuntimeError(f"Maven could not fetch {ARTIFACT}:\n{(done.stdout + done.stderr)[-4000:]}")
        unpacked = Path(part) / "unpacked"
        with tarfile.open(archives[0]) as archive:
            archive.extractall(unpacked, filter="data")
        unpacked.rename(folder)


@contextmanager
def apicurio(port: int, log: Path) -> Iterator[str]:
    """Run the server on a port. Yields the address of its interface for Confluent's clients."""
    jar = next(installation().glob("*-runner.jar"))
    options = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1", "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    address = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [program("java"), *options, "-jar", str(jar)], stdout=output, stderr=subprocess.STDOUT, cwd=jar.parent
        )
        try:
            _wait(server, f"{address}/subjects", log)
            yield address
        finally:
            server.kill()
            server.wait()


def _wait(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            opener.open(address, timeout=2).close()
            return
        except (urllib.error.URLError, OSError):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the registry did not start:\n{log.read_text()[-4000:]}") from None
            time.sleep(0.1)
