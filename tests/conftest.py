"""Fixtures for all tests: the servers, started when first asked for and shared by the session."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import services

# No deadline for an example: machines differ, and a slow one says nothing about what is tested.
settings.register_profile("esker", deadline=None)
settings.load_profile("esker")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real PostgreSQL, private to this session."""
    with services.postgres() as url:
        yield url


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """moto's server: S3 and DynamoDB at one address, with credentials for it in the environment."""
    with services.moto() as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.delenv("AWS_PROFILE", raising=False)
        patch.delenv("AWS_SESSION_TOKEN", raising=False)
        yield url
