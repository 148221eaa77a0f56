"""Users and their access keys, and who a request comes from.

A request proves itself by a session token, or an access key and its secret; the first that it brings decides. What a
key stands for is remembered for `KEY_AGE_S`, so that most requests cost no read: a key, a user or a role that another
process took away may work for so long here. The process that took it away forgets it.

A wrong secret and an unknown key take the same work, reads included, so that time does not tell which it was.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from esker.auth import records
from esker.auth.identity import Grant, Identity, Need, Role
from esker.auth.records import ENCODER, KEYS, SETUP, USERS, AccessKey, Page, Setup, User
from esker.auth.sealing import Sealer, check_fingerprint, derive, fingerprint, same
from esker.auth.tokens import Token, Tokens
from esker.errors import (
    ConflictError,
    ContentionError,
    InvalidError,
    Kind,
    NotFoundError,
    UnauthenticatedError,
)
from esker.stores.kv import KVStore
from esker.world import World

KEY_AGE_S: Final = 5.0
"""How long what a key stands for is remembered: short, for it is how late a revocation elsewhere arrives."""

COOKIE: Final = "internal_auth_session"
"""Holds a session token."""

LOGIN_S: Final = 7 * 24 * 3600
"""How long a session lasts unless somebody set it."""

GRANTS_MAX: Final = 1000
KEYS_MAX: Final = 100
"""Of a user."""

PAGE_MAX: Final = 1000

_REMEMBERED_MAX: Final = 10_000
_PROOF_CHARS_MAX: Final = 600
"""Of a header that is remembered: enough for the longest key."""
_UID_BYTES: Final = 12
_TRIES_MAX: Final = 10
_HEADER_CHARS_MAX: Final = 8192
_USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")
_REPOSITORIES: Final = re.compile(r"[a-z0-9*-]{1,63}")
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{3,128}")
_SECRET: Final = re.compile(r"[!-9;-~]{16,256}")
_KEY_ID_PREFIX: Final = "AKES"
_NOT_KNOWN: Final = "no such access key, or the wrong secret: check both"


class Credentials(NamedTuple):
    """An access key as its owner has it. The secret is told once, when it is made."""

    key: AccessKey
    secret: str


@dataclass(frozen=True, slots=True)
class _Known:
    key_id: str
    identity: Identity
    secret: str
    until_s: float


class Directory:
    """Users and their keys, in a key-value store, under one secret key. Shared by threads."""

    def __init__(self, kv: KVStore, world: World, key: bytes, *, login_s: int = LOGIN_S) -> None:
        self._kv = kv
        self._world = world
        self._secret_key = key
        self._sealer = Sealer(key, world)
        self._tokens = Tokens(key, world)
        self._login_s = login_s
        self._remembered: dict[str, _Known] = {}
        self._proved: dict[str, _Known] = {}
        """By headers that did. They are found by a hash that nobody outside can know, so the time that takes tells
        nothing of them."""
        self._decoy = self._sealer.seal(world.token(20), "")

    def signing_key(self, purpose: str) -> bytes:
        """For signatures that are not about identity, and have to hold in all processes on the lake."""
        return derive(self._secret_key, purpose)

    # Who calls

    def identify(self, authorization: str | None, cookies: Mapping[str, str]) -> Identity:
        """Who calls. UnauthenticatedError unless they proved it."""
        if authorization:
            known = self._proved.get(authorization)
            if known and self._remember(known.key_id) is known:
                return known.identity
            self._proved.pop(authorization, None)
            scheme, _, rest = authorization.strip().partition(" ")
            if len(authorization) <= _HEADER_CHARS_MAX:
                if scheme.lower() == "bearer":
                    return self._by_token(rest.strip())
                if scheme.lower() == "basic":
                    known = self._authenticate(*_pair(rest.strip()))
                    if len(authorization) <= _PROOF_CHARS_MAX:
                        _keep(self._proved, authorization, known)
                    return known.identity
            raise UnauthenticatedError(
                Kind.UNAUTHENTICATED, "unknown Authorization: use Basic, with an access key and its secret, or Bearer"
            )
        if session := cookies.get(COOKIE):
            return self._by_token(session)
        raise UnauthenticatedError(
            Kind.UNAUTHENTICATED, "who are you? send an access key and its secret, or the token of a session"
        )

    def authenticate(self, key_id: str, secret: str) -> Identity:
        """Whose key it is. UnauthenticatedError if there is none such, or this is not its secret."""
        return self._authenticate(key_id, secret).identity

    def _authenticate(self, key_id: str, secret: str) -> _Known:
        known = self._remember(key_id)
        if known and same(known.secret, secret):
            return known
        known = self._look_up(key_id)
        if not same(known.secret if known else self._sealer.unseal(self._decoy, ""), secret) or not known:
            raise UnauthenticatedError(Kind.UNAUTHENTICATED, _NOT_KNOWN)
        return known

    def login(self, key_id: str, secret: str) -> Token:
        """A session's token, for an access key."""
        return self._tokens.issue(self.authenticate(key_id, secret).user, key_id, self._login_s)

    def _by_token(self, text: str) -> Identity:
        claims = self._tokens.read(text)
        known = self._remember(claims.key) or self._look_up(claims.key)
        if known is None or known.identity.user != claims.sub:
            raise UnauthenticatedError(Kind.UNAUTHENTICATED, "the session's key was deleted: log in again")
        return known.identity

    def _remember(self, key_id: str) -> _Known | None:
        known = self._remembered.get(key_id)
        return known if known and self._world.monotonic_s() < known.until_s else None

    def _look_up(self, key_id: str) -> _Known | None:
        """What a key stands for, freshly read. Always two reads."""
        until_s = self._world.monotonic_s() + KEY_AGE_S
        key = records.find_key(self._kv, key_id)
        user = records.find_user(self._kv, key.user if key else "nobody")
        if key is None or user is None or user.uid != key.user_uid:
            self._remembered.pop(key_id, None)
            return None
        known = _Known(key.id, Identity(user.name, user.grants), self._sealer.unseal(key.sealed, key.id), until_s)
        _keep(self._remembered, key_id, known)
        return known

    # The first user

    def is_set_up(self) -> bool:
        """Whether there ever was a first user. InvalidError if that was under another secret key."""
        found = records.find_setup(self._kv)
        if found:
            check_fingerprint(self._secret_key, found.fingerprint)
        return found is not None and found.pending is None

    def set_up(self, name: str, key_id: str | None = None, secret: str | None = None) -> Credentials:
        """Make the first user, admin everywhere, with a key: the one given, or a fresh one.

        ConflictError if that was done before. Of several who try at once one succeeds; all get its key who come while
        it is at work, or after it died in the middle.
        """
        if not self.is_set_up():
            user = self._new_user(name, (Grant(role=Role.ADMIN, repositories="*"),))
            key, _ = self._new_key(user, key_id, secret)
            claim = Setup(fingerprint=fingerprint(self._secret_key), pending=(user, key))
            self._kv.put_if(SETUP, b"setup", ENCODER.encode(claim), None)
        found = records.find_setup(self._kv)
        if found is None or found.pending is None:
            raise ConflictError(Kind.ALREADY_SET_UP, "this lake has its first user: log in as an admin to add others")
        check_fingerprint(self._secret_key, found.fingerprint)
        user, key = found.pending
        self._kv.put_if(USERS, user.name.encode(), ENCODER.encode(user), None)
        self._kv.put_if(KEYS, key.id.encode(), ENCODER.encode(key), None)
        self._kv.put(SETUP, b"setup", ENCODER.encode(Setup(fingerprint=found.fingerprint)))
        return Credentials(key, self._sealer.unseal(key.sealed, key.id))

    # Users

    def users(self, *, prefix: str = "", after: str = "", amount: int = PAGE_MAX) -> Page:
        """Up to `amount` users whose names begin with `prefix` and come after `after`, in byte order."""
        return records.users_page(self._kv, prefix=prefix, after=after, amount=amount)

    def user(self, name: str) -> User:
        """NotFoundError if there is none."""
        found = records.find_user(self._kv, name)
        if found is None:
            raise NotFoundError(Kind.USER_NOT_FOUND, f"no user {name!r}")
        return found

    def create_user(self, name: str, grants: tuple[Grant, ...] = ()) -> User:
        """A new user, who may do what is granted: by default nothing. ConflictError if the name is taken."""
        user = self._new_user(name, grants)
        if not self._kv.put_if(USERS, name.encode(), ENCODER.encode(user), None):
            raise ConflictError(Kind.USER_EXISTS, f"user {name!r} exists: take another name, or delete them first")
        return user

    def grant(self, name: str, grants: tuple[Grant, ...]) -> User:
        """Replace what a user may do. ConflictError if no admin would be left."""
        _check_grants(grants)
        for _ in range(_TRIES_MAX):
            self.user(name)
            found = self._kv.get(USERS, name.encode())
            if found is None:
                continue
            user = msgspec.structs.replace(records.decode_user(name, found.value), grants=grants)
            if not _is_owner(user):
                self._check_others_own(name)
            if self._kv.put_if(USERS, name.encode(), ENCODER.encode(user), found.version):
                self._forget(name)
                return user
        raise ContentionError(Kind.CONTENTION, f"user {name!r} is being changed by others: try again")

    def delete_user(self, name: str) -> None:
        """Delete a user with all their keys. NotFoundError if there is none, ConflictError for the last admin."""
        self.user(name)
        self._check_others_own(name)
        self._kv.delete(USERS, name.encode())
        self._forget(name)
        self._kv.delete_many(KEYS, [key.id.encode() for key in records.every_key(self._kv) if key.user == name])

    # Keys

    def keys(self, name: str) -> list[AccessKey]:
        """A user's keys, in order of their ids. NotFoundError if there is no such user."""
        return [*self._keys_of(self.user(name))]

    def key(self, name: str, key_id: str) -> AccessKey:
        """One of a user's keys. NotFoundError if they have no such."""
        user = self.user(name)
        key = records.find_key(self._kv, key_id)
        if key is None or key.user_uid != user.uid:
            raise NotFoundError(Kind.KEY_NOT_FOUND, f"user {name!r} has no access key {key_id!r}")
        return key

    def create_key(self, name: str, key_id: str | None = None, secret: str | None = None) -> Credentials:
        """One more key for a user: the one given, or a fresh one. NotFoundError if there is no such user."""
        user = self.user(name)
        if len([*self._keys_of(user)]) >= KEYS_MAX:
            raise InvalidError(Kind.INVALID_ARGUMENT, f"user {name!r} has {KEYS_MAX} access keys: delete one first")
        made = self._new_key(user, key_id, secret)
        if not self._kv.put_if(KEYS, made.key.id.encode(), ENCODER.encode(made.key), None):
            raise ConflictError(Kind.KEY_EXISTS, f"access key {made.key.id!r} exists: take another id")
        return made

    def delete_key(self, name: str, key_id: str) -> None:
        """Delete one of a user's keys, and with it the sessions that were opened with it."""
        self._kv.delete(KEYS, self.key(name, key_id).id.encode())
        self._remembered.pop(key_id, None)

    def _keys_of(self, user: User) -> Iterator[AccessKey]:
        return (key for key in records.every_key(self._kv) if key.user_uid == user.uid)

    def _new_user(self, name: str, grants: tuple[Grant, ...]) -> User:
        if not _USER.fullmatch(name):
            raise InvalidError(
                Kind.INVALID_NAME,
                f"{name[:200]!r} is no user's name: 1 to 128 letters, digits and . _ @ + -, beginning with one of the "
                "former two",
            )
        _check_grants(grants)
        uid = self._world.token(_UID_BYTES)
        return User(name=name, uid=uid, created_ms=self._world.now_ms(), grants=grants)

    def _new_key(self, user: User, key_id: str | None, secret: str | None) -> Credentials:
        if key_id is None:
            key_id = _KEY_ID_PREFIX + base64.b32encode(bytes.fromhex(self._world.token(10))).decode()
        elif not _KEY_ID.fullmatch(key_id):
            message = "an access key's id is 3 to 128 letters, digits, _ and -"
            raise InvalidError(Kind.INVALID_ARGUMENT, message)
        if secret is None:
            secret = base64.b64encode(bytes.fromhex(self._world.token(30))).decode()
        elif not _SECRET.fullmatch(secret):
            message = "an access key's secret is 16 to 256 printable ASCII characters, without spaces and colons"
            raise InvalidError(Kind.INVALID_ARGUMENT, message)
        sealed = self._sealer.seal(secret, key_id)
        now_ms = self._world.now_ms()
        key = AccessKey(id=key_id, user=user.name, user_uid=user.uid, sealed=sealed, created_ms=now_ms)
        return Credentials(key, secret)

    def _check_others_own(self, name: str) -> None:
        """ConflictError if `name` is the only admin of the whole lake: nobody could let anybody in again."""
        if not any(_is_owner(user) for user in records.every_user(self._kv) if user.name != name):
            raise ConflictError(Kind.LAST_ADMIN, f"{name!r} is the last admin of '*': make another one first")

    def _forget(self, name: str) -> None:
        for key_id, known in [*self._remembered.items()]:
            if known.identity.user == name:
                self._remembered.pop(key_id, None)


def forget_users(kv: KVStore) -> None:
    """Drop all users and keys, so that the next start sets the lake up anew: for when the secret key is lost."""
    for partition in (KEYS, USERS, SETUP):
        while found := kv.scan(partition):
            kv.delete_many(partition, [item.key for item in found])


def _keep(kept: dict[str, _Known], name: str, known: _Known) -> None:
    if len(kept) >= _REMEMBERED_MAX:
        kept.clear()
    kept[name] = known


def _is_owner(user: User) -> bool:
    return Identity(user.name, user.grants).may(Need.OWNER, None)


def _check_grants(grants: tuple[Grant, ...]) -> None:
    if len(grants) > GRANTS_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"a user has at most {GRANTS_MAX} roles, not {len(grants)}")
    for grant in grants:
        if not _REPOSITORIES.fullmatch(grant.repositories):
            raise InvalidError(
                Kind.INVALID_ARGUMENT,
                f"{grant.repositories[:200]!r} names no repositories: write a name, or a pattern such as 'sales-*'",
            )


def _pair(encoded: str) -> tuple[str, str]:
    """The access key's id and secret of basic authentication."""
    try:
        key_id, separator, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        separator = ""
    if not separator:
        raise UnauthenticatedError(Kind.UNAUTHENTICATED, "the Authorization header is no basic authentication")
    return key_id, secret
