"""Who may do what."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.auth import OWNER, Grant, Identity, Need, Role

NEEDS = [Need.READ, Need.WRITE, Need.ADMIN]
ROLES = [Role.READER, Role.WRITER, Role.ADMIN]


def who(*grants: tuple[Role, str]) -> Identity:
    return Identity("jane", tuple(Grant(role=role, repositories=repositories) for role, repositories in grants))


@pytest.mark.parametrize(("role", "need"), [*product(ROLES, NEEDS)])
def test_a_role_grants_what_it_names_and_all_below(role: Role, need: Need) -> None:
    assert who((role, "sales")).may(need, "sales") == (ROLES.index(role) >= NEEDS.index(need))


@pytest.mark.parametrize("need", NEEDS)
def test_a_role_in_one_repository_is_none_in_another(need: Need) -> None:
    assert not who((Role.ADMIN, "sales")).may(need, "sale")
    assert not who((Role.ADMIN, "sales")).may(need, "sales-eu")
    assert not who().may(need, "sales")


def test_a_pattern_covers_the_names_that_match_it() -> None:
    jane = who((Role.WRITER, "sales-*"))
    assert jane.may(Need.WRITE, "sales-eu")
    assert jane.may(Need.WRITE, "sales-")
    assert not jane.may(Need.WRITE, "sales")
    assert not jane.may(Need.WRITE, "presales-eu")


def test_grants_add_up() -> None:
    jane = who((Role.READER, "*"), (Role.WRITER, "sales"))
    assert jane.may(Need.WRITE, "sales")
    assert jane.may(Need.READ, "other")
    assert not jane.may(Need.WRITE, "other")


def test_everybody_who_is_known_reads_what_is_of_no_repository() -> None:
    assert who().may(Need.READ, None)
    assert not who().may(Need.WRITE, None)


def test_the_lake_belongs_to_admins_of_everything() -> None:
    for repository in (None, "sales"):
        assert who((Role.ADMIN, "*")).may(Need.OWNER, repository)
        assert not who((Role.ADMIN, "sales")).may(Need.OWNER, repository)
        assert not who((Role.WRITER, "*")).may(Need.OWNER, repository)
        assert OWNER.may(Need.OWNER, repository)
    assert not who((Role.ADMIN, "s*")).may(Need.ADMIN, None)


@given(st.sampled_from(ROLES), st.text("ab-*", min_size=1), st.text("ab-", min_size=1), st.sampled_from(NEEDS))
def test_what_is_public_is_everybodys_and_what_one_grant_allows_more_grants_do(
    role: Role, pattern: str, repository: str, need: Need
) -> None:
    one = who((role, pattern))
    two = who((Role.READER, "x"), (role, pattern))
    assert one.may(Need.PUBLIC, repository)
    assert not one.may(need, repository) or two.may(need, repository)
