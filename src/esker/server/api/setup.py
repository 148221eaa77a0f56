"""Setting a lake up: its first user, once."""

from typing import Final

from esker.auth import Need
from esker.auth.directory import COOKIE
from esker.server.api.auth import CredentialsWithSecret, directory_of, with_secret
from esker.server.call import Call, NoQuery, Operation
from esker.server.wire import Body

INITIALIZED: Final = "initialized"
NOT_INITIALIZED: Final = "not_initialized"


class LoginConfig(Body):
    RBAC: str
    login_cookie_names: list[str]
    logout_url: str


class SetupState(Body):
    state: str
    comm_prefs_missing: bool
    login_config: LoginConfig


class AccessKeyCredentials(Body):
    access_key_id: str
    secret_access_key: str


class Setup(Body):
    username: str
    key: AccessKeyCredentials | None = None
    """Left out: a fresh one."""


def get_setup_state(call: Call[NoQuery, None]) -> SetupState:
    """Whether there is a first user."""
    done = call.server.directory is None or call.server.directory.is_set_up()
    return SetupState(
        state=INITIALIZED if done else NOT_INITIALIZED,
        comm_prefs_missing=False,
        login_config=LoginConfig(RBAC="none", login_cookie_names=[COOKIE], logout_url="/logout"),
    )


def set_up(call: Call[NoQuery, Setup]) -> CredentialsWithSecret:
    """Make the first user, admin of everything: for whoever comes first."""
    key = call.body.key
    directory = directory_of(call.server)
    if key is None:
        return with_secret(directory.set_up(call.body.username))
    return with_secret(directory.set_up(call.body.username, key.access_key_id, key.secret_access_key))


OPERATIONS: Final = [
    Operation(
        id="getSetupState",
        method="GET",
        path="/setup_lakefs",
        need=Need.PUBLIC,
        handler=get_setup_state,
    ),
    Operation(
        id="setup",
        method="POST",
        path="/setup_lakefs",
        need=Need.PUBLIC,
        handler=set_up,
        statuses=(409,),
    ),
]
