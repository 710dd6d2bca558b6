"""The version of this package: pyproject.toml takes it from here, so nobody has to look metadata up to know it.

Brokers are told it, and take letters, digits, dots and dashes (KIP-511).
"""

VERSION = "0.1.0"
