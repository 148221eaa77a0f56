"""The secret key of a lake, and what is done with it: nothing that is stored can be read, or forged, without it.

Each purpose has its own key, derived from the one that people keep. Secrets of access keys are sealed with AES-GCM:
they are needed again in plain, for a request that is signed with one is checked by signing it once more.
"""

import hmac
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from esker.errors import InvalidError, Kind
from esker.world import World

SECRET_KEY_BYTES_MIN: Final = 32
"""It may be text that somebody made up, so it has to be long; `openssl rand -hex 32` prints 64 characters."""

_DERIVED_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_WAY_OUT: Final = (
    "start with the secret key of the first start (ESKER_SECRET_KEY, or the file that was made then); if it is lost, "
    "`python -m esker.server --forget-users` drops all users and keys, and the next start makes new ones"
)


def derive(secret_key: bytes, purpose: str) -> bytes:
    """The key for one purpose. Nobody who has it can tell another, or the secret key."""
    return HKDF(SHA256(), _DERIVED_BYTES, salt=None, info=f"esker {purpose}".encode()).derive(secret_key)


def fingerprint(secret_key: bytes) -> str:
    """Tells two secret keys apart, and nothing about either."""
    return derive(secret_key, "fingerprint").hex()


def check_fingerprint(secret_key: bytes, expected: str) -> None:
    """InvalidError, with the way out, if this is not the secret key of which `expected` was taken."""
    if not hmac.compare_digest(fingerprint(secret_key), expected):
        raise InvalidError(Kind.SECRET_KEY, f"the users of this lake were made with another secret key: {_WAY_OUT}")


class Sealer:
    """Seals text so that only the holder of the secret key reads it, and only as what it was sealed as."""

    def __init__(self, secret_key: bytes, world: World) -> None:
        self._cipher = AESGCM(derive(secret_key, "access keys"))
        self._world = world

    def seal(self, text: str, name: str) -> bytes:
        nonce = bytes.fromhex(self._world.token(_NONCE_BYTES))
        return nonce + self._cipher.encrypt(nonce, text.encode(), name.encode())

    def unseal(self, sealed: bytes, name: str) -> str:
        """The text. InvalidError if it was sealed with another key, as something else, or was changed since."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode()).decode()
        except (InvalidTag, ValueError):
            message = f"the secret of access key {name!r} cannot be read with this secret key: {_WAY_OUT}"
            raise InvalidError(Kind.SECRET_KEY, message) from None


def same(left: str, right: str) -> bool:
    """Whether they are equal, in a time that does not tell where they differ, or how long they are."""
    return hmac.compare_digest(sha256(left.encode()).digest(), sha256(right.encode()).digest())
