"""Certificates in PKCS #12, for brokers before 3.3: they read no PEM file whose key has no password."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

PASSWORD = "unused"


def with_pkcs12_stores(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties with each PEM store converted; the new file is next to the old one."""
    changed = dict(properties)
    for name, value in properties.items():
        if name.endswith("store.type") and value == "PEM":
            store = name.removesuffix("type")
            changed[name] = "PKCS12"
            changed[f"{store}password"] = PASSWORD
            changed[f"{store}location"] = str(_converted(Path(properties[f"{store}location"])))
            if store.endswith("keystore."):
                changed[f"{store.removesuffix('keystore.')}key.password"] = PASSWORD
    return changed


def _converted(pem: Path) -> Path:
    # Imported here, because tests on the model need no cryptography, which has no wheels for all Pythons.
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
    from cryptography.x509 import load_pem_x509_certificates

    content, encryption = pem.read_bytes(), BestAvailableEncryption(PASSWORD.encode())
    own, *others = load_pem_x509_certificates(content)
    if b"PRIVATE KEY" in content:
        key = cast(pkcs12.PKCS12PrivateKeyTypes, load_pem_private_key(content, None))
        made = pkcs12.serialize_key_and_certificates(b"key", key, own, others, encryption)
    else:
        trusted = [pkcs12.PKCS12Certificate(each, b"%d" % number) for number, each in enumerate((own, *others))]
        made = pkcs12.serialize_java_truststore(trusted, encryption)
    store = pem.with_suffix(".p12")
    store.write_bytes(made)
    return store
