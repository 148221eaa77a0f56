"""Who may do what, over HTTP: the whole table of operations by the whole table of callers, and users and keys."""

import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Final, NamedTuple

import falcon.testing
import lakefs_sdk
import lakefs_sdk.client
import msgspec
import pytest
from lakefs_sdk.models.login_information import LoginInformation
from lakefs_sdk.models.user_creation import UserCreation
from prometheus_client import CollectorRegistry

from esker.auth import Directory, Grant, Need, Role
from esker.auth.directory import COOKIE, Credentials
from esker.engine.opening import open_stores
from esker.errors import Kind
from esker.server.app import create_app
from esker.server.call import Operation
from esker.server.operations import OPERATIONS
from esker.world import REAL
from tests.server.running import API, Client, Server, serving

IN_SALES: Final = {
    "reader": {Need.PUBLIC, Need.READ},
    "writer": {Need.PUBLIC, Need.READ, Need.WRITE},
    "admin": {Need.PUBLIC, Need.READ, Need.WRITE, Need.ADMIN},
    "admin of another": {Need.PUBLIC},
    "nobody in particular": {Need.PUBLIC},
    "owner": {*Need},
}
"""What each may do in the repository `sales`, by what it needs."""

AT_LARGE: Final = {name: {*Need} if name == "owner" else {Need.PUBLIC, Need.READ} for name in IN_SALES}
"""What each may do that is of no repository."""

GRANTS: Final = {
    "reader": ("reader", "sales"),
    "writer": ("writer", "sales"),
    "admin": ("admin", "sales"),
    "admin of another": ("admin", "sales-*"),
    "nobody in particular": (),
    "owner": ("admin", "*"),
}

WITHOUT: Final = {
    "no credentials": {},
    "a wrong secret": {"Authorization": "Basic " + b64encode(b"AKESNOBODY:wrong-wrong-wrong").decode()},
    "a made-up token": {"Authorization": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJvd25lciJ9."},
    "a made-up cookie": {"Cookie": f"{COOKIE}=eyJhbGciOiJub25lIn0.eyJzdWIiOiJvd25lciJ9."},
}

PUBLIC: Final = {
    "getAuthCapabilities",
    "getDocs",
    "getOpenAPI",
    "getSetupState",
    "health",
    "healthCheck",
    "login",
    "logout",
    "metrics",
    "readBlob",  # the URL is the proof
    "ready",
    "setup",
    "writeBlob",
    "writeJobBlob",
}
"""All that a caller may ask without saying who they are. It takes a reason to add to this."""

READ_BY_POST: Final = {"postStatsEvents"}
"""What changes nothing, although it is no GET."""


class App(NamedTuple):
    client: falcon.testing.TestClient
    headers: dict[str, dict[str, str]]
    """By caller: what proves who they are."""


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    lake, close = open_stores("memory://")
    directory = Directory(lake.kv, REAL, b"k" * 32)
    owner = directory.set_up("owner")
    headers = {"owner": header(owner)}
    for name, grants in GRANTS.items():
        if name != "owner":
            user = name.replace(" ", "-")
            directory.create_user(user, (Grant(role=Role(grants[0]), repositories=grants[1]),) if grants else ())
            headers[name] = header(directory.create_key(user))
    made = create_app(lake, storage="memory://", directory=directory, metrics=CollectorRegistry())
    yield App(falcon.testing.TestClient(made), headers)
    close()


def header(made: Credentials) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{made.key.id}:{made.secret}".encode()).decode()}


def refused(app: App, operation: Operation, headers: dict[str, str], route: str | None = None) -> str:
    """Why it was refused, or nothing. What is sent besides is nonsense: what looks at that first answers otherwise."""
    path = route or re.sub(
        r"\{(\w+)\}", lambda name: "sales" if name[1] == "repository" else "nothing", operation.route
    )
    answer = app.client.simulate_request(
        operation.method,
        path,
        headers={**headers, "Content-Type": "application/json"},
        body="{",
        query_string="amount=x",
    )
    kind = msgspec.json.decode(answer.content).get("kind", "") if answer.content[:1] == b"{" else ""
    if operation.method == "HEAD":
        kind = {401: Kind.UNAUTHENTICATED, 403: Kind.NOT_ALLOWED}.get(answer.status_code, "")
    assert (answer.status_code == 401) == (kind == Kind.UNAUTHENTICATED)
    assert answer.status_code == 403 or kind != Kind.NOT_ALLOWED
    return kind if kind in (Kind.UNAUTHENTICATED, Kind.NOT_ALLOWED) else ""


@pytest.mark.parametrize("caller", GRANTS)
def test_a_caller_may_do_what_their_roles_grant_and_nothing_else(app: App, caller: str) -> None:
    wrong = [
        (operation.id, why)
        for operation in OPERATIONS
        if (why := refused(app, operation, app.headers[caller]))
        != ("" if operation.need in may(caller, operation) else Kind.NOT_ALLOWED)
    ]
    assert wrong == []


def may(caller: str, operation: Operation) -> set[Need]:
    return (IN_SALES if "{repository}" in operation.route else AT_LARGE)[caller]


@pytest.mark.parametrize("headers", WITHOUT.values(), ids=WITHOUT)
def test_who_proves_nothing_may_do_what_is_public_and_nothing_else(app: App, headers: dict[str, str]) -> None:
    wrong = [
        (operation.id, why)
        for operation in OPERATIONS
        if (why := refused(app, operation, headers)) != ("" if operation.id in PUBLIC else Kind.UNAUTHENTICATED)
    ]
    assert wrong == []


def test_the_table_asks_for_the_right_to_write_wherever_something_is_written() -> None:
    assert {operation.id for operation in OPERATIONS if operation.need is Need.PUBLIC} == PUBLIC
    reading = [operation for operation in OPERATIONS if operation.need is Need.READ]
    assert {operation.id for operation in reading if operation.method not in ("GET", "HEAD")} == READ_BY_POST
    for operation in OPERATIONS:
        if operation.route.startswith(f"{API}/auth/users") and operation.implemented:
            assert operation.need is Need.OWNER, operation.id


@pytest.mark.parametrize(
    "name",
    [
        "other",
        "sales%2F..%2Fother",
        "sales%00",
        "SALES",
        "sales%20",
        "%2E%2E",
        "sale",
        "sales.",
        "*",
        "sales%2D",
        "%73ales-",
    ],
)
def test_a_role_in_one_repository_opens_no_other_however_it_is_spelled(app: App, name: str) -> None:
    for operation in OPERATIONS:
        if "{repository}" in operation.route:
            route = re.sub(r"\{(\w+)\}", lambda found: name if found[1] == "repository" else "nothing", operation.route)
            assert refused(app, operation, app.headers["admin"], route) in (Kind.NOT_ALLOWED, ""), operation.id
            if "%2F" not in name:
                assert refused(app, operation, app.headers["admin"], route) == Kind.NOT_ALLOWED, operation.id


@pytest.mark.parametrize(
    "path", ["/nothing", f"{API}/nothing", f"{API}//repositories", f"{API}/repositories/", "/../etc"]
)
def test_what_is_not_in_the_table_does_not_exist(app: App, path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
        answer = app.client.simulate_request(method, path, headers=app.headers["owner"])
        assert answer.status_code in (404, 405), method
    assert app.client.simulate_request("PATCH", f"{API}/repositories", headers=app.headers["owner"]).status_code == 405


# Users, keys and sessions, of a server with two workers


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("identity"), workers=2) as server:
        yield server


@pytest.fixture
def admin(running: Server) -> Client:
    return Client(running.url, running.key)


def test_the_lakefs_client_manages_users_and_keys(running: Server) -> None:
    key_id, secret = running.key
    settings = lakefs_sdk.Configuration(host=running.url + API, username=key_id, password=secret)  # type: ignore[attr-defined]
    client = lakefs_sdk.client.LakeFSClient(settings)  # type: ignore[no-untyped-call]
    auth = client.auth_api
    assert auth.get_current_user().user.id == "admin"
    made = auth.create_user(user_creation=UserCreation(id="sdk-user"))
    assert auth.get_user("sdk-user") == made
    assert [user.id for user in auth.list_users(prefix="sdk").results] == ["sdk-user"]
    key = auth.create_credentials("sdk-user")
    assert [one.access_key_id for one in auth.list_user_credentials("sdk-user").results] == [key.access_key_id]
    assert auth.get_credentials("sdk-user", key.access_key_id).creation_date == key.creation_date
    information = LoginInformation(access_key_id=key.access_key_id, secret_access_key=key.secret_access_key)
    token = auth.login(login_information=information)
    bearer = lakefs_sdk.Configuration(host=running.url + API, access_token=token.token)  # type: ignore[attr-defined]
    as_user = lakefs_sdk.client.LakeFSClient(bearer)  # type: ignore[no-untyped-call]
    assert as_user.auth_api.get_current_user().user.id == "sdk-user"
    with pytest.raises(lakefs_sdk.exceptions.ForbiddenException):
        as_user.auth_api.list_users()
    auth.delete_credentials("sdk-user", key.access_key_id)
    with pytest.raises(lakefs_sdk.exceptions.NotFoundException):
        auth.get_credentials("sdk-user", key.access_key_id)
    auth.delete_user("sdk-user")
    with pytest.raises(lakefs_sdk.exceptions.NotFoundException):
        auth.get_user("sdk-user")
    with pytest.raises(lakefs_sdk.exceptions.UnauthorizedException):
        auth.login(login_information=information)


def test_roles_decide_what_a_user_sees_and_does(running: Server, admin: Client) -> None:
    for name in ("sales-eu", "sales-us", "hidden"):
        admin.post("/repositories", {"name": name, "storage_namespace": ""})
    admin.post("/auth/users", {"id": "jane"})
    made = admin.post("/auth/users/jane/credentials", None)
    jane = Client(running.url, (made["access_key_id"], made["secret_access_key"]))
    assert jane.get("/repositories")["results"] == []
    assert jane.ask("GET", f"{API}/repositories/sales-eu").status == 403
    roles = [
        {"role": "reader", "repositories": "sales-*"},
        {"role": "writer", "repositories": "sales-eu"},
    ]
    assert admin.put("/auth/users/jane/roles", {"roles": roles})["roles"] == roles
    fresh = admin.post("/auth/users/jane/credentials", None)  # no worker remembers what jane could do before
    jane = Client(running.url, (fresh["access_key_id"], fresh["secret_access_key"]))
    assert jane.get("/user")["user"]["roles"] == roles
    assert [repo["id"] for repo in jane.get("/repositories")["results"]] == ["sales-eu", "sales-us"]
    upload = "/branches/main/objects?path=a"
    assert jane.ask("POST", f"{API}/repositories/sales-eu{upload}", b"x").status == 201
    assert jane.ask("POST", f"{API}/repositories/sales-us{upload}", b"x").status == 403
    assert jane.ask("GET", f"{API}/repositories/sales-us/refs/main/objects/ls").status == 200
    assert jane.ask("GET", f"{API}/repositories/hidden/refs/main/objects/ls").status == 403
    assert jane.ask("POST", f"{API}/repositories", {"name": "mine", "storage_namespace": ""}).status == 403
    wrong = [{"role": "king", "repositories": "*"}], [{"role": "reader", "repositories": "a/b"}], [{"role": "reader"}]
    for roles in wrong:
        assert admin.ask("PUT", f"{API}/auth/users/jane/roles", {"roles": roles}).status == 400


def test_a_session_lives_in_a_cookie_that_scripts_and_other_sites_cannot_use(running: Server) -> None:
    key_id, secret = running.key
    nobody = Client(running.url)
    login = {"access_key_id": key_id, "secret_access_key": secret}
    answer = nobody.ask("POST", f"{API}/auth/login", login)
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {*cookie.split("; ")}
    assert nobody.ask("GET", f"{API}/user", headers={"Cookie": cookie.split(";")[0]}).status == 200
    out = nobody.ask("GET", "/logout")
    assert (out.status, out.headers["Location"]) == (303, "/")
    assert out.headers["Set-Cookie"].startswith(f'{COOKIE}=""')
    wrong = nobody.ask("POST", f"{API}/auth/login", {**login, "secret_access_key": "wrong-wrong-wrong"})
    assert wrong.status == 401
    assert "Set-Cookie" not in wrong.headers


def test_the_last_admin_stays_and_no_secret_is_told_twice(running: Server, admin: Client) -> None:
    assert admin.ask("DELETE", f"{API}/auth/users/admin").status == 409
    assert admin.ask("PUT", f"{API}/auth/users/admin/roles", {"roles": []}).status == 409
    secret = running.key[1]
    for path in ("/user", "/auth/users", "/auth/users/admin", "/auth/users/admin/credentials"):
        assert secret.encode() not in admin.ask("GET", API + path).data
