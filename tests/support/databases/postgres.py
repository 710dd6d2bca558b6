"""A PostgreSQL server for tests: a folder and a port of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

from support.brokers.kafka import HOST, free_ports
from support.brokers.kafka_admin import wait_until

USER = "tests"
DATABASE = "postgres"
START_S = 30
# A test needs no data after a crash of the machine. Commits stay atomic and isolated.
SETTINGS = ("fsync=off", "full_page_writes=off", "max_connections=50", "shared_buffers=16MB")


def postgres_program(name: str) -> str:
    """Returns the path of a program of the server. Debian installs these outside the PATH."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(installed[-1]) if installed else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is missing: `tools/system-packages python3 postgres` installs it")
    return found


def other_user() -> dict[str, Any]:
    """Returns the arguments of Popen for the user of the server, which refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam("postgres")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


class Postgres:
    """A running server with an empty database, for a user without a password. A context manager."""

    def __init__(self) -> None:
        self._port = free_ports(1)[0]
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def jdbc_url(self) -> str:
        """The URL for JDBC."""
        return f"jdbc:postgresql://{HOST}:{self._port}/{DATABASE}?user={USER}"

    @property
    def url(self) -> str:
        """The URL for libpq, as psycopg takes it."""
        return f"postgresql://{USER}@{HOST}:{self._port}/{DATABASE}"

    def __enter__(self) -> Self:
        account = other_user()
        if account:
            os.chown(self._folder, account["user"], account["group"])
        data = self._folder / "data"
        initdb = [postgres_program("initdb"), "-D", str(data), "-U", USER, "-A", "trust", "--no-sync", "-E", "UTF8"]
        subprocess.run(initdb, check=True, capture_output=True, cwd=self._folder, **account)
        self._start()
        return self

    def _start(self) -> None:
        command = [postgres_program("postgres"), "-D", str(self._folder / "data"), "-h", HOST, "-p", str(self._port)]
        settings = [
            part for setting in (*SETTINGS, f"unix_socket_directories={self._folder}") for part in ("-c", setting)
        ]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command + settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                **other_user(),
            )
        ready = [postgres_program("pg_isready"), "-h", HOST, "-p", str(self._port), "-q"]
        wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, START_S, "start of PostgreSQL")

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait(START_S)
        shutil.rmtree(self._folder)

    def restart(self) -> None:
        """Kill the server, as a crash would, and start it again."""
        assert self._server is not None
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait(START_S)
        self._start()

    def rows(self, query: str) -> list[tuple[str, ...]]:
        """Run statements by psql. Returns the rows of the last one as text."""
        psql = [
            postgres_program("psql"),
            self.url,
            "-X",
            "-q",
            "-A",
            "-t",
            "-F",
            "\t",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            query,
        ]
        done = subprocess.run(psql, check=True, capture_output=True, text=True)
        return [tuple(line.split("\t")) for line in done.stdout.splitlines()]
