"""The OpenAPI document of the server, and a page to browse it. Both are made from the table of operations, so they say
what the code does."""

import html
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, get_args

import falcon
import msgspec

from esker.auth import Need
from esker.server import VERSION, wire
from esker.server.call import Call, NoQuery, Operation, Stream

_VARIABLE: Final = re.compile(r"\{(\w+)\}")
_COMMON_STATUSES: Final = (400, 429, 500, 503, 504)
_TITLE: Final = "esker"

_STATUS_MEANINGS: Final = {
    200: "Done.",
    201: "Made.",
    202: "Begun.",
    204: "Done; there is nothing to say.",
    206: "A part of the bytes.",
    302: "They are elsewhere.",
    303: "Go on there.",
    304: "As you have it.",
    400: "The request is not right as it is.",
    401: "Nobody known, or the wrong proof.",
    403: "The rules refuse it, or the caller may not do it.",
    404: "There is no such thing.",
    409: "Look at what is there, then decide.",
    410: "The bytes are gone.",
    412: "The condition of the request does not hold.",
    413: "The body is too large.",
    416: "No such range of bytes.",
    429: "Others kept winning: try again later.",
    500: "A mistake of the server, or damage in the store.",
    501: "Not there yet.",
    503: "A store did not answer: try again later.",
    504: "It may or may not have been done.",
}


def get_document(call: Call[NoQuery, None]) -> Stream:
    """This API as an OpenAPI document."""
    data = _document(call.server.operations)
    call.response.content_type = falcon.MEDIA_JSON
    return Stream(iter([data]), len(data))


def get_page(call: Call[NoQuery, None]) -> Stream:
    """This API as a page to read."""
    data = _page(call.server.operations)
    call.response.content_type = falcon.MEDIA_HTML
    call.response.set_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
    return Stream(iter([data]), len(data))


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The OpenAPI document of these."""
    kinds = [kind for one in operations for kind in (one.shape.body, one.shape.answer) if _has_schema(kind)]
    schemas, components = msgspec.json.schema_components([*kinds, wire.Error, wire.MergeConflict], ref_template=_REF)
    known = dict(zip(map(repr, kinds), schemas, strict=False))
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.route, {})[one.method.lower()] = _operation(one, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "version": VERSION, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "internal_auth_session"},
            },
        },
        "security": [{"basic": []}, {"token": []}, {"cookie": []}],
    }


_REF: Final = "#/components/schemas/{name}"
_ERROR: Final = {"$ref": _REF.format(name="Error")}
_CONFLICT: Final = {"anyOf": [_ERROR, {"$ref": _REF.format(name="MergeConflict")}]}


@lru_cache(maxsize=4)
def _document(operations: tuple[Operation, ...]) -> bytes:
    return msgspec.json.encode(document(operations))


def _has_schema(kind: Any) -> bool:
    return kind not in (None, type(None), str) and Stream not in (kind, *get_args(kind))


def _operation(one: Operation, known: dict[str, Any]) -> dict[str, Any]:
    shape = one.shape
    said: dict[str, Any] = {
        "operationId": one.id,
        "tags": [one.group],
        "summary": one.summary,
        "parameters": [*_variables(one.route), *_query(shape.query), *_headers(one)],
        "responses": _responses(one, known),
    }
    if one.need is Need.PUBLIC:
        said["security"] = []
    if shape.body is not None:
        said["requestBody"] = {
            "required": shape.body_required,
            "content": {falcon.MEDIA_JSON: {"schema": known[repr(shape.body)]}},
        }
    elif one.upload:
        octets = {"schema": {"type": "string", "format": "binary"}}
        said["requestBody"] = {"required": True, "content": {"application/octet-stream": octets}}
    return said


def _variables(route: str) -> Iterable[dict[str, Any]]:
    for name in _VARIABLE.findall(route):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _headers(one: Operation) -> Iterable[dict[str, Any]]:
    for name in one.headers:
        yield {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}


def _query(query: type[msgspec.Struct]) -> Iterable[dict[str, Any]]:
    (schema,), components = msgspec.json.schema_components([query])
    described = components[schema["$ref"].rpartition("/")[2]]
    for name, about in described["properties"].items():
        yield {"name": name, "in": "query", "required": name in described["required"], "schema": about}


def _responses(one: Operation, known: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if one.implemented:
        responses[str(one.status)] = {"description": _STATUS_MEANINGS[one.status], **_answer(one, known)}
    else:
        responses["501"] = _error(501, _ERROR)
    refusals = () if one.need is Need.PUBLIC else (401, 403)
    missing = (404,) if "{" in one.route else ()
    too_large = (413,) if one.shape.body is not None else ()
    for status in sorted({*_COMMON_STATUSES, *refusals, *missing, *too_large, *one.statuses} - {one.status}):
        responses[str(status)] = _error(status, _CONFLICT if status == 409 else _ERROR)
    return responses


def _error(status: int, schema: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"description": _STATUS_MEANINGS[status]}
    if status == 206:
        said["content"] = {"*/*": {"schema": {}}}
    elif status >= 400:
        said["content"] = {falcon.MEDIA_JSON: {"schema": schema}}
    return said


def _answer(one: Operation, known: dict[str, Any]) -> dict[str, Any]:
    answer = one.shape.answer
    if answer in (None, type(None)) or one.method == "HEAD":
        return {}
    if answer is str:
        return {"content": {falcon.MEDIA_HTML: {"schema": {"type": "string"}}}}
    if not _has_schema(answer):
        return {"content": {"*/*": {"schema": {}}}}
    return {"content": {falcon.MEDIA_JSON: {"schema": known[repr(answer)]}}}


@lru_cache(maxsize=4)
def _page(operations: tuple[Operation, ...]) -> bytes:
    groups: dict[str, list[Operation]] = {}
    for one in operations:
        groups.setdefault(one.group, []).append(one)
    body = "".join(
        f"<h2 id={html.escape(group)}>{html.escape(group)}</h2>{''.join(map(_section, members))}"
        for group, members in groups.items()
    )
    links = " ".join(f"<a href='#{html.escape(group)}'>{html.escape(group)}</a>" for group in groups)
    head = f"<!doctype html><meta charset=utf-8><title>{_TITLE} API</title>{_STYLE}<h1>{_TITLE} API</h1>{_HEAD}"
    return f"{head}<nav>{links}</nav>{body}".encode()


def _section(one: Operation) -> str:
    parameters = [*_variables(one.route), *_query(one.shape.query), *_headers(one)]
    rows = "".join(
        f"<tr><td><code>{html.escape(found['name'])}</code><td>{found['in']}<td>"
        f"{'needed' if found['required'] else html.escape(_default(found['schema']))}"
        for found in parameters
    )
    body = _fields(one.shape.body, "Body") + (_fields(one.shape.answer, "Answer") if one.implemented else "")
    statuses = ", ".join(map(str, sorted({one.status, *one.statuses})))
    return (
        f"<details><summary><b class={one.method}>{one.method}</b> <code>{html.escape(one.route)}</code> "
        f"{'' if one.implemented else '<i>501</i> '}{html.escape(one.summary)}</summary>"
        f"<p><code>{html.escape(one.id)}</code>, takes: {one.need.value}; answers {statuses}</p>"
        f"<table>{rows}</table>{body}</details>"
    )


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    return "" if default in (None, "", []) else f"{default}".lower() if isinstance(default, bool) else f"{default}"


def _fields(kind: Any, title: str) -> str:
    if not _has_schema(kind):
        return ""
    _, components = msgspec.json.schema_components([kind])
    shown = "".join(
        f"<tr><td><code>{html.escape(name)}</code><td colspan=2>"
        + html.escape(
            ", ".join(
                f"{field}{'' if field in about.get('required', []) else '?'}" for field in about.get("properties", {})
            )
        )
        for name, about in components.items()
    )
    return f"<p>{title}</p><table>{shown}</table>"


_HEAD: Final = (
    "<p>Made from the server's table of operations; <a href=/openapi.json>openapi.json</a> has the details. "
    "<i>501</i> marks what is part of the lakeFS API, and not there yet.</p>"
)

_STYLE: Final = """<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
nav a { margin-right: .8rem } h2 { margin-top: 2rem } details { margin: .2rem 0 } summary { cursor: pointer }
code { font: 13px ui-monospace, monospace } b { display: inline-block; width: 4.2rem; font-size: 12px }
b.GET { color: #05716c } b.POST { color: #2a5db0 } b.PUT, b.PATCH { color: #8a5a00 } b.DELETE { color: #b3261e }
table { margin-left: 5rem; border-spacing: .8rem .1rem; color: #444 } p { margin: .2rem 0 .2rem 5rem; color: #444 }
h1 + p { margin-left: 0 } i { background: #eee; padding: 0 .3rem; font-style: normal; font-size: 12px }
</style>"""

OPERATIONS: Final = [
    Operation(
        id="getOpenAPI",
        group="documents",
        method="GET",
        base="",
        path="/openapi.json",
        need=Need.PUBLIC,
        handler=get_document,
        ours=True,
    ),
    Operation(
        id="getDocs",
        group="documents",
        method="GET",
        base="",
        path="/docs",
        need=Need.PUBLIC,
        handler=get_page,
        ours=True,
    ),
]
