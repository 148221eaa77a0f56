"""Users, keys and sessions; over the memory store, which all stores agree with."""

import base64
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import jwt
import msgspec
import pytest

from esker.auth import Directory, Grant, Need, Role, UnauthenticatedError
from esker.auth.directory import COOKIE, KEY_AGE_S, LOGIN_S, Credentials, forget_users
from esker.auth.records import ENCODER, KEYS, SETUP, USERS
from esker.auth.sealing import derive
from esker.errors import (
    ConflictError,
    CorruptError,
    InvalidError,
    Kind,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from esker.stores.kv import KVStore
from esker.stores.kv_memory import MemoryKV
from esker.testing.faults import Call, Fault, FaultyKV
from tests.auth.worlds import StoppedWorld

SECRET_KEY = b"0123456789abcdef0123456789abcdef"
READS_SALES = (Grant(role=Role.READER, repositories="sales"),)


@pytest.fixture
def world() -> StoppedWorld:
    return StoppedWorld()


@pytest.fixture
def kv() -> Iterator[KVStore]:
    store = MemoryKV()
    yield store
    store.close()


@pytest.fixture
def directory(kv: KVStore, world: StoppedWorld) -> Directory:
    return Directory(kv, world, SECRET_KEY)


@pytest.fixture
def admin(directory: Directory) -> Credentials:
    return directory.set_up("admin")


def basic(key_id: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{key_id}:{secret}".encode()).decode()


def header(made: Credentials) -> str:
    return basic(made.key.id, made.secret)


def test_a_key_with_its_secret_is_known_and_with_another_is_not(directory: Directory, admin: Credentials) -> None:
    found = directory.identify(header(admin), {})
    assert found.user == "admin"
    assert found.may(Need.OWNER, None)
    for wrong in (
        basic(admin.key.id, admin.secret + "x"),
        basic(admin.key.id, admin.secret[:-1]),
        basic(admin.key.id, ""),
        basic("AKESNOBODY", admin.secret),
        basic("", ""),
    ):
        with pytest.raises(UnauthenticatedError):
            directory.identify(wrong, {})


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        " ",
        "Basic",
        "Basic ",
        "Basic !!!!",
        "Basic é",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Basic " + "A" * 100_000,
        "Basic " + base64.b64encode(b"k" * 2000 + b":s").decode(),
        "Bearer",
        "Bearer x",
        "Bearer a.b.c",
        "Bearer é.é.é",
        "AWS4-HMAC-SHA256 Credential=x",
    ],
)
def test_what_proves_nothing_is_refused(directory: Directory, admin: Credentials, authorization: str | None) -> None:
    with pytest.raises(UnauthenticatedError):
        directory.identify(authorization, {})


def test_a_session_is_known_until_its_time_is_up(directory: Directory, admin: Credentials, world: StoppedWorld) -> None:
    token = directory.login(admin.key.id, admin.secret)
    assert token.expires_s == world.now_ms() // 1000 + LOGIN_S
    assert directory.identify(f"Bearer {token.text}", {}).user == "admin"
    assert directory.identify(None, {COOKIE: token.text}).user == "admin"
    world.now_s += LOGIN_S - 1
    assert directory.identify(f"Bearer {token.text}", {}).user == "admin"
    world.now_s += 1
    with pytest.raises(UnauthenticatedError, match="log in again"):
        directory.identify(f"Bearer {token.text}", {})


def test_nobody_logs_in_with_a_wrong_secret(directory: Directory, admin: Credentials) -> None:
    with pytest.raises(UnauthenticatedError):
        directory.login(admin.key.id, "wrong-wrong-wrong")


def test_the_header_decides_and_a_cookie_does_not_mend_it(directory: Directory, admin: Credentials) -> None:
    token = directory.login(admin.key.id, admin.secret).text
    with pytest.raises(UnauthenticatedError):
        directory.identify(basic(admin.key.id, "wrong"), {COOKIE: token})
    assert directory.identify(header(admin), {COOKIE: "nonsense"}).user == "admin"


def test_a_token_that_we_did_not_sign_is_refused(directory: Directory, admin: Credentials, world: StoppedWorld) -> None:
    now_s = world.now_ms() // 1000
    claims = {"sub": "admin", "key": admin.key.id, "iss": "esker", "iat": now_s, "exp": now_s + 60}
    ours = derive(SECRET_KEY, "tokens")
    assert directory.identify("Bearer " + jwt.encode(claims, ours, algorithm="HS256"), {}).user == "admin"
    forged = [
        jwt.encode(claims, "", algorithm="none"),
        jwt.encode(claims, b"x" * 32, algorithm="HS256"),
        jwt.encode(claims, ours + ours, algorithm="HS512"),
        jwt.encode({**claims, "iss": "other"}, ours, algorithm="HS256"),
        jwt.encode({**claims, "sub": "jane"}, ours, algorithm="HS256"),
        jwt.encode({**claims, "key": "other"}, ours, algorithm="HS256"),
        jwt.encode({name: value for name, value in claims.items() if name != "exp"}, ours, algorithm="HS256"),
        jwt.encode({**claims, "exp": "never"}, ours, algorithm="HS256"),
    ]
    for token in forged:
        with pytest.raises(UnauthenticatedError):
            directory.identify(f"Bearer {token}", {})


def test_a_session_ends_with_its_key_and_with_its_user(directory: Directory, admin: Credentials) -> None:
    directory.create_user("jane")
    ends: list[Callable[[str], None]] = [
        lambda key: directory.delete_key("jane", key),
        lambda _: directory.delete_user("jane"),
    ]
    for end in ends:
        made = directory.create_key("jane")
        token = directory.login(made.key.id, made.secret).text
        assert directory.identify(f"Bearer {token}", {}).user == "jane"
        end(made.key.id)
        with pytest.raises(UnauthenticatedError):
            directory.identify(f"Bearer {token}", {})
        with pytest.raises(UnauthenticatedError):
            directory.identify(header(made), {})


def test_most_requests_cost_no_read(directory: Directory, admin: Credentials, kv: KVStore) -> None:
    token = directory.login(admin.key.id, admin.secret).text
    before = kv.counts.reads["auth"]
    for _ in range(100):
        directory.identify(header(admin), {})
        directory.identify(f"Bearer {token}", {})
    assert kv.counts.reads["auth"] == before


def test_what_another_process_took_away_ends_when_it_is_forgotten(
    directory: Directory, admin: Credentials, kv: KVStore, world: StoppedWorld
) -> None:
    other = Directory(kv, world, SECRET_KEY)
    other.create_user("jane", (Grant(role=Role.WRITER, repositories="*"),))
    made = other.create_key("jane")
    assert directory.identify(header(made), {}).may(Need.WRITE, "sales"), "what was added works at once"
    other.grant("jane", READS_SALES)
    assert not other.identify(header(made), {}).may(Need.WRITE, "sales")
    world.now_s += KEY_AGE_S
    assert not directory.identify(header(made), {}).may(Need.WRITE, "sales")
    other.delete_key("jane", made.key.id)
    world.now_s += KEY_AGE_S
    with pytest.raises(UnauthenticatedError):
        directory.identify(header(made), {})


def test_a_wrong_secret_and_an_unknown_key_read_the_same(
    directory: Directory, admin: Credentials, kv: KVStore, world: StoppedWorld
) -> None:
    directory.identify(header(admin), {})

    def reads_of(authorization: str) -> int:
        before = kv.counts.reads["auth"]
        with pytest.raises(UnauthenticatedError):
            directory.identify(authorization, {})
        return kv.counts.reads["auth"] - before

    remembered = reads_of(basic(admin.key.id, "wrong"))
    world.now_s += KEY_AGE_S
    assert reads_of(basic(admin.key.id, "wrong")) == remembered == reads_of(basic("AKESNOBODY", "wrong")) > 0


def test_no_secret_lies_in_the_store(directory: Directory, admin: Credentials, kv: KVStore) -> None:
    directory.create_user("jane")
    made = [admin, directory.create_key("jane"), directory.create_key("jane", "my-key", "secret-of-mine-1")]
    stored = b"".join(item.record.value for partition in (USERS, KEYS, SETUP) for item in kv.scan(partition))
    assert len(kv.scan(KEYS)) == len(made)
    for one in made:
        assert one.key.id.encode() in stored
        assert one.secret.encode() not in stored
    assert SECRET_KEY not in stored


def test_a_sealed_secret_is_good_for_its_own_key_only(directory: Directory, admin: Credentials, kv: KVStore) -> None:
    directory.create_user("jane")
    made = directory.create_key("jane")
    moved = msgspec.structs.replace(admin.key, sealed=made.key.sealed)
    kv.put(KEYS, moved.id.encode(), ENCODER.encode(moved))
    with pytest.raises(InvalidError) as caught:
        directory.identify(basic(admin.key.id, made.secret), {})
    assert caught.value.kind is Kind.SECRET_KEY


def test_a_fresh_key_looks_like_one_and_is_like_no_other(directory: Directory, admin: Credentials) -> None:
    made = [directory.create_key("admin") for _ in range(20)]
    assert {len(one.key.id) for one in made} == {20}
    assert {len(one.secret) for one in made} == {40}
    assert len({one.key.id for one in made} | {one.secret for one in made}) == 40


def test_a_user_has_several_keys_and_nobody_elses(directory: Directory, admin: Credentials) -> None:
    directory.create_user("jane")
    made = [directory.create_key("jane") for _ in range(3)]
    assert [key.id for key in directory.keys("jane")] == sorted(one.key.id for one in made)
    assert {directory.identify(header(one), {}).user for one in made} == {"jane"}
    assert directory.key("jane", made[0].key.id) == made[0].key
    for name, key_id in (("jane", admin.key.id), ("admin", made[0].key.id), ("jane", "unknown")):
        with pytest.raises(NotFoundError):
            directory.key(name, key_id)
        with pytest.raises(NotFoundError):
            directory.delete_key(name, key_id)
    directory.delete_key("jane", made[0].key.id)
    assert len(directory.keys("jane")) == 2
    with pytest.raises(NotFoundError):
        directory.create_key("nobody")


def test_a_given_key_is_checked_and_never_anothers(directory: Directory, admin: Credentials) -> None:
    directory.create_user("jane")
    directory.create_key("jane", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    with pytest.raises(ConflictError):
        directory.create_key("admin", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    for key_id, secret in (
        ("a", "x" * 40),
        ("a b c", "x" * 40),
        ("a:b", "x" * 40),
        ("fine", "short"),
        ("fine", "é" * 20),
    ):
        with pytest.raises(InvalidError):
            directory.create_key("jane", key_id, secret)


def test_users_are_listed_in_order_page_by_page(directory: Directory, admin: Credentials) -> None:
    for name in ("b-1", "a@x.org", "b-2", "b-3"):
        directory.create_user(name)
    assert [user.name for user in directory.users().items] == ["a@x.org", "admin", "b-1", "b-2", "b-3"]
    page = directory.users(prefix="b-", amount=2)
    assert ([user.name for user in page.items], page.next) == (["b-1", "b-2"], "b-2")
    page = directory.users(prefix="b-", after="b-2", amount=2)
    assert ([user.name for user in page.items], page.next) == (["b-3"], None)
    assert directory.users(prefix="c").items == []


@pytest.mark.parametrize("name", ["", ".x", "a b", "a/b", "a:b", "é", "x" * 129, "a\n"])
def test_a_name_that_cannot_be_a_users_is_refused(directory: Directory, name: str) -> None:
    with pytest.raises(InvalidError):
        directory.create_user(name)
    with pytest.raises(NotFoundError):
        directory.user(name)


def test_a_user_exists_once_and_may_nothing_at_first(directory: Directory, admin: Credentials) -> None:
    made = directory.create_user("jane")
    assert directory.user("jane") == made
    assert made.grants == ()
    with pytest.raises(ConflictError):
        directory.create_user("jane")
    assert directory.grant("jane", READS_SALES).grants == READS_SALES
    assert directory.user("jane").uid == made.uid
    with pytest.raises(NotFoundError):
        directory.grant("nobody", READS_SALES)


@pytest.mark.parametrize("pattern", ["", "Sales", "a/b", "[ab]", "a?", "x" * 64])
def test_a_pattern_that_names_no_repositories_is_refused(
    directory: Directory, admin: Credentials, pattern: str
) -> None:
    directory.create_user("jane")
    with pytest.raises(InvalidError):
        directory.grant("jane", (Grant(role=Role.READER, repositories=pattern),))


def test_a_user_made_again_has_none_of_the_old_keys(
    directory: Directory, admin: Credentials, kv: KVStore, world: StoppedWorld
) -> None:
    directory.create_user("jane")
    made = directory.create_key("jane")
    left_over = kv.get(KEYS, made.key.id.encode())
    assert left_over
    directory.delete_user("jane")
    kv.put(KEYS, made.key.id.encode(), left_over.value)  # as if the deletion had died before it came to the keys
    directory.create_user("jane")
    with pytest.raises(UnauthenticatedError):
        directory.identify(header(made), {})
    assert directory.keys("jane") == []


def test_the_last_admin_of_everything_stays(directory: Directory, admin: Credentials) -> None:
    directory.create_user("jane", (Grant(role=Role.ADMIN, repositories="sales"),))
    with pytest.raises(ConflictError):
        directory.delete_user("admin")
    with pytest.raises(ConflictError):
        directory.grant("admin", READS_SALES)
    directory.grant("jane", (Grant(role=Role.ADMIN, repositories="*"),))
    directory.grant("admin", READS_SALES)
    directory.delete_user("admin")
    with pytest.raises(ConflictError):
        directory.delete_user("jane")


def test_a_lake_is_set_up_once(directory: Directory) -> None:
    assert not directory.is_set_up()
    made = directory.set_up("first", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    assert directory.is_set_up()
    assert directory.identify(header(made), {}).may(Need.OWNER, None)
    with pytest.raises(ConflictError) as caught:
        directory.set_up("second")
    assert caught.value.kind is Kind.ALREADY_SET_UP
    assert [user.name for user in directory.users().items] == ["first"]


def test_of_many_who_set_a_lake_up_at_once_one_does(kv: KVStore, world: StoppedWorld) -> None:
    together = threading.Barrier(8)

    def set_up(name: str) -> Credentials | None:
        own = Directory(kv, world, SECRET_KEY)
        together.wait()
        try:
            return own.set_up(name)
        except ConflictError:
            return None

    with ThreadPoolExecutor(8) as pool:
        made = [one for one in pool.map(set_up, [f"user-{n}" for n in range(8)]) if one]
    assert len({(one.key.id, one.secret) for one in made}) == 1
    directory = Directory(kv, world, SECRET_KEY)
    assert [user.name for user in directory.users().items] == [made[0].key.user]
    assert directory.identify(header(made[0]), {}).may(Need.OWNER, None)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST])
@pytest.mark.parametrize("number", range(4))
def test_a_set_up_that_broke_off_anywhere_is_done_by_the_next(
    kv: KVStore, world: StoppedWorld, number: int, fault: Fault
) -> None:
    """Whatever it had written, the next who tries gets a key that works."""
    writes = count()

    def decide(call: Call) -> Fault | None:
        return fault if call.writes and next(writes) == number else None

    with pytest.raises((UnavailableError, OutcomeUnknownError)):
        Directory(FaultyKV(kv, decide), world, SECRET_KEY).set_up("admin")
    directory = Directory(kv, world, SECRET_KEY)
    if not (number == 3 and fault is Fault.LOST):  # the last write, which says that all is done
        assert not directory.is_set_up()
        made = directory.set_up("admin")
        assert directory.identify(header(made), {}).may(Need.OWNER, None)
    assert directory.is_set_up()


def test_another_secret_key_is_refused_with_the_way_out(
    directory: Directory, admin: Credentials, kv: KVStore, world: StoppedWorld
) -> None:
    other = Directory(kv, world, b"another" * 8)
    for ask in (other.is_set_up, lambda: other.set_up("x"), lambda: other.identify(header(admin), {})):
        with pytest.raises(InvalidError, match=r"ESKER_SECRET_KEY.*--forget-users") as caught:
            ask()
        assert caught.value.kind is Kind.SECRET_KEY
    with pytest.raises(UnauthenticatedError):
        other.identify("Bearer " + directory.login(admin.key.id, admin.secret).text, {})
    forget_users(kv)
    assert not other.is_set_up()
    assert other.identify(header(other.set_up("again")), {}).user == "again"
    with pytest.raises(UnauthenticatedError):
        other.identify(header(admin), {})


def test_a_record_of_another_format_is_refused(directory: Directory, admin: Credentials, kv: KVStore) -> None:
    newer = msgspec.structs.replace(directory.user("admin"), format_version=2)
    kv.put(USERS, b"admin", ENCODER.encode(newer))
    with pytest.raises(CorruptError):
        directory.user("admin")


def test_keys_for_other_purposes_are_of_no_use_here(directory: Directory, kv: KVStore, world: StoppedWorld) -> None:
    assert directory.signing_key("addresses") == Directory(kv, world, SECRET_KEY).signing_key("addresses")
    assert directory.signing_key("addresses") not in (
        directory.signing_key("x"),
        derive(SECRET_KEY, "tokens"),
        SECRET_KEY,
    )
