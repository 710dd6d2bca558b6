"""Brokers that require a login, their users and tokens, and a token issuer over TLS."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from support.brokers.kafka import KafkaCluster
from support.brokers.kafka_admin import ADMIN_TIMEOUT_S, Kafka, wait_until
from support.brokers.kafka_jars import DEFAULT_VERSION, kafka_jars, program

MODULES = "org.apache.kafka.common.security."
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def sasl_properties(listener: str, mechanisms: Iterable[str], users: dict[str, str]) -> dict[str, str]:
    """Returns the properties of a listener. `users` are those of PLAIN; SCRAM users are made by `set_password`."""
    prefix = f"listener.name.{listener.lower()}."
    known = "".join(f' user_{name}="{password}"' for name, password in users.items())
    entries = {
        "PLAIN": f"{MODULES}plain.PlainLoginModule required{known};",
        **dict.fromkeys(SCRAM, f"{MODULES}scram.ScramLoginModule required;"),
        "OAUTHBEARER": f'{MODULES}oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
    }
    chosen = list(mechanisms)
    found = {f"{prefix}sasl.enabled.mechanisms": ",".join(chosen)}
    return found | {f"{prefix}{name.lower()}.sasl.jaas.config": entries[name] for name in chosen if name in entries}


def set_password(kafka: Kafka, user: str, password: str, mechanisms: Iterable[str] = SCRAM) -> None:
    """Make a user of SCRAM, or change the password."""
    for mechanism in mechanisms:
        info = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        kafka.admin.alter_user_scram_credentials([change])[user].result(ADMIN_TIMEOUT_S)


def allow(kafka: Kafka, user: str, operation: str, *, topic: str = "", group: str = "") -> None:
    """Give a user a permission, and wait until the broker applies it, which is later than the controller's response."""
    kind, name = (ResourceType.TOPIC, topic) if topic else (ResourceType.GROUP, group)
    fields = (
        kind,
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation.upper()],
        AclPermissionType.ALLOW,
    )
    for future in kafka.admin.create_acls([AclBinding(*fields)]).values():
        future.result(ADMIN_TIMEOUT_S)
    known = AclBindingFilter(*fields)
    wait_until(lambda: kafka.admin.describe_acls(known).result(ADMIN_TIMEOUT_S), ADMIN_TIMEOUT_S, "a permission")


def forbid(kafka: Kafka, user: str) -> None:
    """Remove all permissions that `allow` has given."""
    anything: Any = None  # its annotations forget that a name and a host may be left out
    everything = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        f"User:{user}",
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for future in kafka.admin.delete_acls([everything]).values():
        future.result(ADMIN_TIMEOUT_S)


def unsecured_token(user: str, lifetime_s: float = 60.0, **claims: Any) -> str:
    """Returns a JWT without a signature, which a broker accepts unless it is configured with keys."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + lifetime_s, **claims})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join(encoded) + "."


def delegation_token(kafka: KafkaCluster, listener: str, mechanism: str, entry: str) -> tuple[str, str]:
    """Create a token for the user of this JAAS entry with Kafka's own admin client. Returns its id and HMAC."""
    source = Path(__file__).parents[1] / "java" / "DelegationToken.java"
    command = [program("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", os.pathsep.join(map(str, kafka_jars(DEFAULT_VERSION))), str(source)]
    command += [kafka.servers(listener), mechanism, entry]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"no delegation token:\n{done.stdout}{done.stderr}")
    token_id, hmac = done.stdout.split()
    return token_id, hmac


def write_secret(path: Path, text: str) -> str:
    """Write a file with a secret. Returns the reference to it."""
    path.write_text(text)
    return f"file:{path}"
