"""The version of this package. pyproject.toml reads it from here, so that no metadata must be searched at run time.

It is sent to brokers, which allow letters, digits, dots and dashes (KIP-511).
"""

VERSION = "0.1.0"
