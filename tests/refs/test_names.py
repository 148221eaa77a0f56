"""What may be a name, and what the refusal says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.errors import InvalidError, Kind
from esker.refs import names
from esker.refs.expressions import parse

COMMIT = "0123456789abcdef" * 4


@pytest.mark.parametrize("name", ["abc", "0-9", "a" * 63, "sales-2024", "a--"])
def test_repositories_may_be_called(name: str) -> None:
    assert names.check_repository(name) == name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "3 to 63 characters"),
        ("ab", "it has 2"),
        ("a" * 64, "it has 64"),
        ("Sales", "replace 'S'"),
        ("sales\n", r"replace '\\n'"),
        ("-sales", "take the '-' off"),
        ("sa_les", "replace '_'"),
        ("salés", "replace 'é'"),
    ],
)
def test_repositories_may_not_be_called(name: str, told: str) -> None:
    refused(names.check_repository, name, told)


@pytest.mark.parametrize("name", ["main", "a", "_", "9-lives", "Feature_1", "x" * 255, COMMIT[1:], COMMIT.upper()])
def test_branches_may_be_called(name: str) -> None:
    assert names.check_branch(name) == name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "1 to 255 bytes"),
        ("x" * 256, "1 to 255 bytes"),
        ("a/b", "replace '/'"),
        ("main~1", "replace '~'"),
        ("main\n", r"replace '\\n'"),
        ("é", "replace 'é'"),
        ("-f", "take the '-' off"),
        ("\ud800", "bytes of UTF-8"),
        (COMMIT, "read as a commit"),
    ],
)
def test_branches_may_not_be_called(name: str, told: str) -> None:
    refused(names.check_branch, name, told)


@pytest.mark.parametrize("name", ["v1", "v1.0", "-", "rel@1.0", "$5", "é", "\U0001f680", ".hidden", "a.locks", "#{}"])
def test_tags_may_be_called(name: str) -> None:
    assert names.check_tag(name) == name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "1 to 255 bytes"),
        ("é" * 128, "1 to 255 bytes"),
        ("a/b", "replace '/'"),
        ("a..b", "replace '..'"),
        ("a@{b", "replace '@{'"),
        ("v1.", "ends otherwise than with '.'"),
        ("v1.lock", "ends otherwise than with '.lock'"),
        ("@", "ends otherwise than with '@'"),
        ("main$", "ends otherwise than with '\\$'"),
        ("a b", "replace ' '"),
        ("a\tb", r"replace '\\t'"),
        ("a\u00a0b", r"replace '\\xa0'"),
        ("a\x7f", r"replace '\\x7f'"),
        ("\udcff", "bytes of UTF-8"),
        (COMMIT, "read as a commit"),
        *((f"a{char}", "replace") for char in "~^:?*[\\"),
    ],
)
def test_tags_may_not_be_called(name: str, told: str) -> None:
    refused(names.check_tag, name, told)


@given(st.text(max_size=8) | st.text("a.~^@$-{", max_size=5))
def test_every_name_that_is_let_through_is_an_expression_for_itself(name: str) -> None:
    for check in (names.check_branch, names.check_tag, names.check_repository):
        try:
            check(name)
        except InvalidError:
            continue
        assert parse(name).base == name


@pytest.mark.parametrize("text", ["", "a b", "a\n", "\u00a0", "x" * 1025, "é" * 513, "\ud800"])
def test_no_ref(text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        names.check_ref(text)
    assert caught.value.kind is Kind.INVALID_REF


def test_the_longest_ref() -> None:
    assert names.check_ref("x" * 1024)


def test_a_close_name_is_suggested() -> None:
    assert names.did_you_mean("mian", ["dev", "main", "maintenance"]) == "; did you mean 'main'?"
    assert names.did_you_mean("mian", ["dev"]) == ""
    assert names.did_you_mean("mian", (f"branch{n}" for n in iter(int, 1))) == "", "it looks among so many only"


def refused(check: object, name: str, told: str) -> None:
    assert callable(check)
    with pytest.raises(InvalidError, match=told) as caught:
        check(name)
    assert caught.value.kind is Kind.INVALID_NAME
