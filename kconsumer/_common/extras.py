"""How to install the optional packages of kconsumer, for errors about packages that are missing."""

from __future__ import annotations

__all__ = ["how_to_install"]


def how_to_install(extra: str) -> str:
    """Returns the commands that install an extra, such as "registry"."""
    return (
        f"pip install '.[{extra}]' in a checkout of kconsumer, or, with a wheel file, pip install './FILE.whl[{extra}]'"
    )
