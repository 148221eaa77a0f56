"""Users, their access keys and roles, and sessions. A secret is in one answer only: of what made it."""

from typing import Final, Literal

from esker.auth import OWNER, Directory, Grant, Need, Role
from esker.auth.directory import COOKIE, Credentials
from esker.auth.records import AccessKey, User
from esker.errors import InvalidError, Kind
from esker.server import wire
from esker.server.call import Call, NoQuery, Operation, Server
from esker.server.paging import PrefixQuery, pagination
from esker.server.wire import Body


class RoleGrant(Body):
    role: Literal["admin", "writer", "reader"]
    repositories: str
    """A name, or a pattern in which `*` stands for anything."""


class UserAnswer(Body):
    id: str
    creation_date: int
    friendly_name: str
    roles: list[RoleGrant]


class UserList(Body):
    pagination: wire.Pagination
    results: list[UserAnswer]


class CurrentUser(Body):
    user: UserAnswer


class UserCreation(Body):
    id: str


class Roles(Body):
    roles: list[RoleGrant]


class CredentialsAnswer(Body):
    access_key_id: str
    creation_date: int


class CredentialsList(Body):
    pagination: wire.Pagination
    results: list[CredentialsAnswer]


class CredentialsWithSecret(Body):
    access_key_id: str
    secret_access_key: str
    creation_date: int


class LoginInformation(Body):
    access_key_id: str
    secret_access_key: str


class AuthenticationToken(Body):
    token: str
    token_expiration: int


class AuthCapabilities(Body):
    invite_user: bool
    forgot_password: bool


def directory_of(server: Server) -> Directory:
    """InvalidError if everybody who comes here is the owner."""
    if server.directory is None:
        raise InvalidError(Kind.INVALID_ARGUMENT, "this lake was opened by its owner, who needs no users: ask a server")
    return server.directory


def with_secret(made: Credentials) -> CredentialsWithSecret:
    return CredentialsWithSecret(
        access_key_id=made.key.id, secret_access_key=made.secret, creation_date=made.key.created_ms // 1000
    )


def get_current_user(call: Call[NoQuery, None]) -> CurrentUser:
    """Who calls."""
    if call.server.directory is None:
        return CurrentUser(user=_user(User(name=OWNER.user, uid="", created_ms=0, grants=OWNER.grants)))
    return CurrentUser(user=_user(call.server.directory.user(call.identity.user)))


def login(call: Call[NoQuery, LoginInformation]) -> AuthenticationToken:
    """A session's token, for an access key. It comes as a cookie too."""
    token = directory_of(call.server).login(call.body.access_key_id, call.body.secret_access_key)
    call.response.set_cookie(
        COOKIE,
        token.text,
        max_age=token.lifetime_s,
        path="/",
        secure=call.request.forwarded_scheme == "https",
        http_only=True,
        same_site="Strict",
    )
    return AuthenticationToken(token=token.text, token_expiration=token.expires_s)


def logout(call: Call[NoQuery, None]) -> None:
    """Take the session's cookie back."""
    call.response.unset_cookie(COOKIE, path="/", same_site="Strict")
    call.response.set_header("Location", "/")


def auth_capabilities(_: Call[NoQuery, None]) -> AuthCapabilities:
    """What a login page may offer."""
    return AuthCapabilities(invite_user=False, forgot_password=False)


def list_users(call: Call[PrefixQuery, None]) -> UserList:
    """Users in order of their names."""
    query = call.query
    page = directory_of(call.server).users(prefix=query.prefix, after=query.after, amount=query.size)
    return UserList(pagination=pagination(page.items, page.next), results=[_user(user) for user in page.items])


def create_user(call: Call[NoQuery, UserCreation]) -> UserAnswer:
    """A new user, who may do nothing until a role is granted."""
    return _user(directory_of(call.server).create_user(call.body.id))


def get_user(call: Call[NoQuery, None]) -> UserAnswer:
    """One user, with the roles they have."""
    return _user(directory_of(call.server).user(call.path["userId"]))


def delete_user(call: Call[NoQuery, None]) -> None:
    """Delete a user, and all their access keys."""
    directory_of(call.server).delete_user(call.path["userId"])


def set_roles(call: Call[NoQuery, Roles]) -> UserAnswer:
    """Replace a user's roles."""
    grants = tuple(Grant(role=Role(grant.role), repositories=grant.repositories) for grant in call.body.roles)
    return _user(directory_of(call.server).grant(call.path["userId"], grants))


def list_credentials(call: Call[PrefixQuery, None]) -> CredentialsList:
    """A user's access keys, without their secrets."""
    query = call.query
    found = [
        key
        for key in directory_of(call.server).keys(call.path["userId"])
        if key.id.startswith(query.prefix) and key.id > query.after
    ]
    page = found[: query.size]
    following = page[-1].id if len(found) > len(page) else None
    return CredentialsList(pagination=pagination(page, following), results=[_key(key) for key in page])


def create_credentials(call: Call[NoQuery, None]) -> CredentialsWithSecret:
    """One more access key. Its secret is told here, and never again."""
    return with_secret(directory_of(call.server).create_key(call.path["userId"]))


def get_credentials(call: Call[NoQuery, None]) -> CredentialsAnswer:
    """One access key, without its secret."""
    return _key(directory_of(call.server).key(call.path["userId"], call.path["accessKeyId"]))


def delete_credentials(call: Call[NoQuery, None]) -> None:
    """Delete an access key, and with it the sessions that were opened with it."""
    directory_of(call.server).delete_key(call.path["userId"], call.path["accessKeyId"])


def _user(user: User) -> UserAnswer:
    return UserAnswer(
        id=user.name,
        creation_date=user.created_ms // 1000,
        friendly_name=user.name,
        roles=[RoleGrant(role=grant.role.value, repositories=grant.repositories) for grant in user.grants],
    )


def _key(key: AccessKey) -> CredentialsAnswer:
    return CredentialsAnswer(access_key_id=key.id, creation_date=key.created_ms // 1000)


_USERS: Final = "/auth/users"
_USER: Final = "/auth/users/{userId}"
_KEYS: Final = "/auth/users/{userId}/credentials"
_KEY: Final = "/auth/users/{userId}/credentials/{accessKeyId}"

OPERATIONS: Final = [
    Operation(id="getCurrentUser", method="GET", path="/user", need=Need.READ, handler=get_current_user),
    Operation(id="login", method="POST", path="/auth/login", need=Need.PUBLIC, handler=login, statuses=(401,)),
    Operation(
        id="logout",
        group="auth",
        method="GET",
        path="/logout",
        base="",
        need=Need.PUBLIC,
        handler=logout,
        status=303,
        ours=True,
    ),
    Operation(
        id="getAuthCapabilities",
        method="GET",
        path="/auth/capabilities",
        need=Need.PUBLIC,
        handler=auth_capabilities,
    ),
    Operation(id="listUsers", method="GET", path=_USERS, need=Need.OWNER, handler=list_users),
    Operation(
        id="createUser",
        method="POST",
        path=_USERS,
        need=Need.OWNER,
        handler=create_user,
        status=201,
        statuses=(409,),
    ),
    Operation(id="getUser", method="GET", path=_USER, need=Need.OWNER, handler=get_user),
    Operation(id="deleteUser", method="DELETE", path=_USER, need=Need.OWNER, handler=delete_user, status=204),
    Operation(
        id="setUserRoles",
        group="auth",
        method="PUT",
        path=f"{_USER}/roles",
        need=Need.OWNER,
        handler=set_roles,
        ours=True,
    ),
    Operation(id="listUserCredentials", method="GET", path=_KEYS, need=Need.OWNER, handler=list_credentials),
    Operation(
        id="createCredentials",
        method="POST",
        path=_KEYS,
        need=Need.OWNER,
        handler=create_credentials,
        status=201,
    ),
    Operation(id="getCredentials", method="GET", path=_KEY, need=Need.OWNER, handler=get_credentials),
    Operation(
        id="deleteCredentials",
        method="DELETE",
        path=_KEY,
        need=Need.OWNER,
        handler=delete_credentials,
        status=204,
    ),
]
