"""Hints: what a merge that gave up has worked out, signed, so that another try, on any server, may go on from it.

A hint names the tree of the last try. Whatever that tree holds is not stored again; nothing else is taken from it, so a
hint can make a merge cheaper, but never different. It is bound to its merge, and dies long before its files might.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from esker.engine.lake import Lake
from esker.errors import InvalidError, Kind
from esker.model import CommitID, FileName, Repository
from esker.tree.merge import Strategy

_KEY: Final = b"hint_secret"
_SECRET_BYTES: Final = 32
_MAC_BYTES: Final = 32


class Hint(msgspec.Struct, frozen=True, array_like=True):
    """A merge, and the tree that it came to."""

    repository: str
    source: CommitID
    branch: str
    strategy: Strategy
    squash: bool
    tree: FileName
    expires_ms: int


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Hint)


def give(
    lake: Lake, repo: Repository, source: CommitID, branch: str, strategy: Strategy, squash: bool, tree: FileName
) -> str:
    """A hint, as text."""
    expires_ms = lake.world.now_ms() + int(lake.settings.grace_s * 1000 / 2)
    body = _ENCODER.encode(Hint(repo.uid, source, branch, strategy, squash, tree, expires_ms))
    return urlsafe_b64encode(body + _mac(lake, repo, body)).decode()


def take(
    lake: Lake, repo: Repository, source: CommitID, branch: str, strategy: Strategy, squash: bool, text: str
) -> FileName:
    """The tree that a hint names. InvalidError unless it was given for this very merge, and not too long ago."""
    try:
        data = urlsafe_b64decode(text.encode())
    except ValueError:
        data = b""
    body, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
    if not body or not hmac.compare_digest(mac, _mac(lake, repo, body)):
        raise _refused("it was not given out here")
    hint = _DECODER.decode(body)
    if (hint.repository, hint.source, hint.branch, hint.strategy, hint.squash) != (
        repo.uid,
        source,
        branch,
        strategy,
        squash,
    ):
        raise _refused("it belongs to another merge")
    if hint.expires_ms < lake.world.now_ms():
        raise _refused("it has expired")
    return hint.tree


def _refused(why: str) -> InvalidError:
    return InvalidError(Kind.INVALID_HINT, f"this hint is refused, since {why}: merge without it")


def _mac(lake: Lake, repo: Repository, body: bytes) -> bytes:
    return hmac.new(_secret(lake, repo), body, hashlib.sha256).digest()


def _secret(lake: Lake, repo: Repository) -> bytes:
    """The repository's secret, drawn when first asked for, and then the same for every server."""
    partition = f"settings/{repo.uid}"
    found = lake.kv.get(partition, _KEY)
    if found is None:
        lake.kv.put_if(partition, _KEY, lake.world.token(_SECRET_BYTES).encode(), None)
        found = lake.kv.get(partition, _KEY)
        assert found is not None, "a secret is never deleted"
    return found.value
