"""Pages: which part of a list was asked for, and how it is sent."""

from collections.abc import Sequence
from typing import Final

import msgspec

from esker.server import wire

PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = 1000


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which page."""

    after: str = ""
    amount: int = PAGE_DEFAULT

    @property
    def size(self) -> int:
        """How many items to send at most."""
        return PAGE_DEFAULT if self.amount <= 0 else min(self.amount, PAGE_MAX)


class PrefixQuery(PageQuery, frozen=True, kw_only=True):
    prefix: str = ""


def pagination(found: Sequence[object], following: str | None) -> wire.Pagination:
    """`following` is what to pass as `after` for the next page, if there is one."""
    return wire.Pagination(
        has_more=following is not None, next_offset=following or "", results=len(found), max_per_page=PAGE_MAX
    )
