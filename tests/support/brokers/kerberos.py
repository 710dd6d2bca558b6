"""A key distribution centre of MIT Kerberos for tests: a realm of its own in a folder, on a port of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

from support.brokers.kafka import HOST, free_ports
from support.brokers.kafka_admin import wait_until

REALM = "KCONSUMER.TEST"
START_S = 20
SBIN = "/usr/sbin:/sbin:/usr/local/sbin"


def kerberos_program(name: str) -> str:
    """Returns the path of a program of the server. Debian installs these outside the PATH of ordinary users."""
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), SBIN)))
    if found is None:
        raise RuntimeError(f"{name} is missing: `make system` installs krb5-kdc and krb5-admin-server")
    return found


class KeyCentre:
    """Principals are made by `add`, which gives the keytab. `conf` is the file for clients (KRB5_CONFIG). A context
    manager."""

    def __init__(self, folder: Path) -> None:
        self.conf = folder / "krb5.conf"
        self._folder = folder
        self._port = free_ports(1)[0]
        self._environment = {
            **os.environ,
            "KRB5_CONFIG": str(self.conf),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        }
        self._server: subprocess.Popen[bytes] | None = None

    def add(self, name: str) -> str:
        """Create a principal of the realm. Returns the path of its keytab."""
        path = self._folder / f"{name.replace('/', '-')}.keytab"
        self._administer(f"addprinc -randkey {name}@{REALM}")
        self._administer(f"ktadd -k {path} {name}@{REALM}")
        return str(path)

    def new_key(self, name: str) -> None:
        """Change a principal's key, which makes its keytab invalid."""
        self._administer(f"cpw -randkey {name}@{REALM}")

    def __enter__(self) -> Self:
        self.conf.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_realm = false\n dns_lookup_kdc = false\n"
            f" rdns = false\n dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f" default_ccache_name = FILE:{self._folder}/tickets\n"
            f"[realms]\n {REALM} = {{\n  kdc = {HOST}:{self._port}\n }}\n"
        )
        (self._folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = {HOST}:{self._port}\n kdc_tcp_listen = {HOST}:{self._port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {self._folder}/principal\n"
            f"  key_stash_file = {self._folder}/stash\n  acl_file = {self._folder}/acl\n }}\n"
            f"[logging]\n kdc = FILE:{self._folder}/kdc.log\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        command = [kerberos_program("krb5kdc"), "-n", "-P", str(self._folder / "pid")]
        with (self._folder / "out.log").open("wb") as out:
            self._server = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        wait_until(self._started, START_S, "start of the key distribution centre")
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait(START_S)

    def _started(self) -> bool:
        assert self._server is not None
        if self._server.poll() is not None:
            raise RuntimeError(f"the key distribution centre ended:\n{(self._folder / 'out.log').read_text()}")
        log = self._folder / "kdc.log"
        return log.exists() and "commencing operation" in log.read_text()

    def _administer(self, query: str) -> None:
        self._run("kadmin.local", "-r", REALM, "-q", query)

    def _run(self, program: str, *arguments: str) -> None:
        command = [kerberos_program(program), *arguments]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode or "rror" in done.stderr:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
