"""Runs the `kconsumer` command for `python -m kconsumer`."""

from __future__ import annotations

import sys

from kconsumer.cli import main

if __name__ == "__main__":
    sys.exit(main())
