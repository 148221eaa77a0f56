"""Session tokens: JSON web tokens that name a user and the access key they logged in with.

A token dies with its key, its user, or its time, whichever comes first; nothing about it is stored.
"""

from typing import Final, NamedTuple

import jwt
import msgspec

from esker.auth.sealing import derive
from esker.errors import Kind, UnauthenticatedError
from esker.world import World

_ALGORITHM: Final = "HS256"
_ISSUER: Final = "esker"


class Token(NamedTuple):
    text: str
    expires_s: int
    """Seconds since 1970, UTC."""
    lifetime_s: int


class Claims(msgspec.Struct, frozen=True):
    sub: str
    key: str
    """The id of the access key."""
    iss: str
    iat: int
    exp: int


class Tokens:
    """Issues and reads tokens, by one secret key."""

    def __init__(self, secret_key: bytes, world: World) -> None:
        self._key = derive(secret_key, "tokens")
        self._world = world

    def issue(self, user: str, key_id: str, lifetime_s: int) -> Token:
        now_s = self._world.now_ms() // 1000
        claims = Claims(sub=user, key=key_id, iss=_ISSUER, iat=now_s, exp=now_s + lifetime_s)
        return Token(jwt.encode(msgspec.to_builtins(claims), self._key, algorithm=_ALGORITHM), claims.exp, lifetime_s)

    def read(self, text: str) -> Claims:
        """What a token says. UnauthenticatedError unless we issued it, and its time is not up."""
        # Its times are checked here, not by the library: by the clock that we were given.
        options: jwt.types.Options = {"verify_exp": False, "verify_iat": False}
        try:
            found = jwt.decode(text, self._key, algorithms=[_ALGORITHM], issuer=_ISSUER, options=options)
            claims = msgspec.convert(found, Claims)
        except (jwt.InvalidTokenError, msgspec.ValidationError):
            raise UnauthenticatedError(Kind.UNAUTHENTICATED, "the session token is not one of ours") from None
        if claims.exp * 1000 <= self._world.now_ms():
            raise UnauthenticatedError(Kind.UNAUTHENTICATED, "the session has expired: log in again")
        return claims
