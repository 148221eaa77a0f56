"""The OpenAPI document says what the server does: requests made from it find no mistake of the server's, and its
answers are those that the document tells of."""

from html.parser import HTMLParser
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from esker.server.call import Operation
from esker.server.openapi import document
from esker.server.operations import OPERATIONS
from tests.server.live import Live

EXAMPLES = 5
"""For each operation, of requests that are right and of such that are not: the whole is to take seconds."""

CHECKS: list[Any] = [status_code_conformance, content_type_conformance, response_schema_conformance]

THERE = {"branch": "main", "ref": "main", "sourceRef": "main", "leftRef": "main", "rightRef": "main~0"}
THERE |= {"destinationBranch": "main", "commitId": "main", "path": "there"}
"""What a repository of these tests has, so that requests come further than to what is missing."""

ASKABLE = [one for one in OPERATIONS if one.implemented]


@pytest.fixture(scope="module")
def schema() -> Any:
    return schemathesis.openapi.from_dict(document(OPERATIONS))


@pytest.mark.parametrize("operation", ASKABLE, ids=[one.id for one in ASKABLE])
def test_no_request_finds_a_mistake(server: Live, repo: str, schema: Any, operation: Operation) -> None:
    server.put(repo, "there", b"hello")
    known = {**THERE, "repository": repo}
    described = schema[operation.route][operation.method]
    right, wrong = (described.as_strategy(generation_mode=mode) for mode in GenerationMode)

    @seed(operation.id)
    @settings(
        max_examples=2 * EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=st.one_of(right, wrong), given_known=st.booleans())
    def ask(case: Any, given_known: bool) -> None:
        if given_known:
            case.path_parameters = {
                name: known.get(name, value) for name, value in (case.path_parameters or {}).items()
            }
            case.query = {name: known.get(name, value) for name, value in (case.query or {}).items()}
        headers = {"Authorization": server.authorization}
        response = case.call(base_url=server.url, headers=headers, allow_redirects=False, timeout=30)
        assert response.status_code < 500 or response.status_code == 501, response.text
        case.validate_response(response, checks=CHECKS)

    ask()


def test_the_document_is_served_to_everybody(server: Live) -> None:
    got = server.ask("GET", "/openapi.json", login=False)
    assert got.status == 200
    assert got.json["paths"].keys() == {one.route for one in OPERATIONS}
    assert {about["operationId"] for path in got.json["paths"].values() for about in path.values()} == {
        one.id for one in OPERATIONS
    }


def test_the_page_needs_nothing_from_elsewhere(server: Live) -> None:
    class Page(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.outside: list[str] = []
            self.text = ""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links = [value or "" for name, value in attrs if name in ("src", "href")]
            self.outside += [link for link in links if not link.startswith(("#", "/"))]
            assert tag != "script"

        def handle_data(self, data: str) -> None:
            self.text += data

    got = server.ask("GET", "/docs", login=False)
    page = Page()
    page.feed(got.body.decode())
    assert page.outside == []
    assert all(one.id in page.text for one in OPERATIONS)
