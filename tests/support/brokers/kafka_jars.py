"""The jars of brokers and tools. Maven resolves them once into a cache outside the tree.

Decides which artifacts a broker and the Java tools consist of, and how parallel test workers share one download. Each
set of jars is a folder that is renamed into place when it is complete. This module starts no broker.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DEFAULT_VERSION = "4.4.0"
OLD_VERSION = "3.9.1"
CHOSEN_VERSION = os.environ.get("KAFKA_VERSION", DEFAULT_VERSION)  # of every cluster that a test does not choose itself
TOOLS_VERSION = "4.3.1"

INSTALL_HINT = (
    "install a JDK 17 and Maven (`make setup` does; by hand on Debian: apt-get install openjdk-17-jdk-headless maven)"
)


@dataclass(frozen=True)
class Artifact:
    """One Maven dependency, and the transitive dependencies that are excluded."""

    group: str
    name: str
    version: str
    exclude: tuple[tuple[str, str], ...] = ()

    def xml(self) -> str:
        """Returns the `<dependency>` element of a pom."""
        excluded = "".join(
            f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
            for group, name in self.exclude
        )
        return (
            f"<dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>"
            f"<version>{self.version}</version><exclusions>{excluded}</exclusions></dependency>"
        )


# Releases bring different logging backends; slf4j-simple, set up by system properties, serves them all.
OTHER_LOGGING = (("org.slf4j", "slf4j-reload4j"), ("ch.qos.reload4j", "reload4j"))
OLD_LOGGING = (("org.slf4j", "slf4j-log4j12"), ("log4j", "log4j"))
# 4.4.0 names a kafka-tools-api that was never published; the broker runs without it.
UNPUBLISHED = (("org.apache.kafka", "kafka-tools-api"),)
LOGGING = Artifact("org.slf4j", "slf4j-simple", "1.7.36")
# That of Kafka before 2.4 cannot resolve names of hosts with Java 14 and newer; this is the one of Kafka 2.8.
ZOOKEEPER = Artifact("org.apache.zookeeper", "zookeeper", "3.5.9", (*OTHER_LOGGING, *OLD_LOGGING))

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>kconsumer</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{dependencies}</dependencies>
</project>
"""


def kafka_jars(version: str = DEFAULT_VERSION) -> list[Path]:
    """Returns the class path of a Kafka broker of this version. The first use downloads it."""
    broker = Artifact("org.apache.kafka", scala_build(version), version, OTHER_LOGGING + UNPUBLISHED)
    zookeeper = () if release_of(version) >= (2, 4) else (ZOOKEEPER,)
    return resolve(f"broker-{version}", broker, *zookeeper, LOGGING)


def scala_build(version: str) -> str:
    """Returns the name of the broker's artifact, which contains the version of Scala."""
    return "kafka_2.13" if release_of(version) >= (2, 4) else "kafka_2.12"


def release_of(version: str) -> tuple[int, ...]:
    """Returns major and minor number."""
    return tuple(int(number) for number in version.split(".")[:2])


def kafka_tools_jars(version: str = TOOLS_VERSION) -> list[Path]:
    """Returns the class path of the Java command line tools (ConsumerPerformance, ConsumerGroupCommand)."""
    tools = Artifact("org.apache.kafka", "kafka-tools", version, OTHER_LOGGING)
    return resolve(f"tools-{version}", tools, LOGGING)


def program(name: str) -> str:
    """Returns the path of `java`, `javac` or `mvn`. If it is missing, raises RuntimeError that says what to install."""
    home = os.environ.get("JAVA_HOME")
    found = (home and shutil.which(name, path=f"{home}/bin")) or shutil.which(name)
    if not found:
        raise RuntimeError(f"cannot run a Kafka broker: {name!r} is not on PATH; {INSTALL_HINT}")
    return found


def cache_root() -> Path:
    """Returns the folder that holds every set of jars, shared by all checkouts of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kconsumer" / "kafka"


def resolve(name: str, *artifacts: Artifact) -> list[Path]:
    """Returns the jars of these artifacts and of their dependencies, from the cache folder `name` or through Maven."""
    folder = cache_root() / name
    if not folder.is_dir():
        with locked(cache_root() / f"{name}.lock"):
            if not folder.is_dir():  # another worker may have finished while this one waited
                download(folder, artifacts)
    return sorted(folder.glob("*.jar"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; the kernel drops it if the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def download(folder: Path, artifacts: tuple[Artifact, ...]) -> None:
    """Let Maven copy `artifacts` and their dependencies next to `folder`, then rename the copy into place."""
    maven = program("mvn")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-part-") as part:
        pom = Path(part) / "pom.xml"
        pom.write_text(POM.format(dependencies="".join(artifact.xml() for artifact in artifacts)))
        jars = Path(part) / "jars"
        command = [maven, "-q", "-B", "-f", str(pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode or not any(jars.glob("*.jar")):
            raise RuntimeError(f"Maven could not fetch {folder.name}:\n{(done.stdout + done.stderr)[-4000:]}")
        jars.rename(folder)


def main() -> None:
    """Fetch the sets named on the command line (`make setup` does so before any test runs)."""
    for name in sys.argv[1:] or [DEFAULT_VERSION, OLD_VERSION]:
        jars = kafka_tools_jars() if name == "tools" else kafka_jars(name)
        print(f"{name}: {len(jars)} jars in {jars[0].parent}")


if __name__ == "__main__":
    main()
