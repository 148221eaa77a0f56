"""Settings: data, read from the environment in one place and passed on."""

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ between two processes on one lake. What must not is in the repository's record."""

    dirty_read_optimization: bool = True
    """Whether reads of a clean branch skip staging. Writers keep the flag either way, so it can be switched at once."""
    cache_bytes: int = 256 << 20
    """Decoded ranges kept in memory."""
    threads: int = 8
    """Of the pool for reading and writing ranges: they mostly wait for the store."""
    grace_s: float = 3600.0
    """How long what fell off a branch is kept for readers that still look at it. A read never takes half as long."""


DEFAULTS = Settings()
