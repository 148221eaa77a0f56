"""The operations of the REST API as methods. What they return are the API's own documents (docs/rest.md), decoded.

Errors are those of `esker.errors`, as the server raised them. What may be tried again is, a few times and ever later:
a request that was refused for now (429, 503: nothing was changed) or never heard; one whose answer was lost, only where
doing it twice is as good as once.
"""

from base64 import b64encode
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from esker.client.failures import error_of, failure
from esker.client.transport import Answer, Body, LostError, Transport
from esker.errors import (
    ContentionError,
    EskerError,
    InvalidError,
    Kind,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from esker.world import REAL, World

API: Final = "/api/v1"

TRIES_MAX: Final = 6
PAUSE_S: Final = 0.2
"""Before the second try. It doubles, up to"""
PAUSE_S_MAX: Final = 5.0

PAGE: Final = 1000

MERGE_TRIES_MAX: Final = 10
"""Each passes on the hint of the one before, so they get cheap."""

Document = dict[str, Any]

_REFUSED: Final = frozenset({429, 503})
_READS: Final = frozenset({"GET", "HEAD"})


def basic(key_id: str, secret: str) -> str:
    """The header `Authorization` for an access key."""
    return "Basic " + b64encode(f"{key_id}:{secret}".encode()).decode()


def bearer(token: str) -> str:
    """The same for a session's token."""
    return f"Bearer {token}"


class Client:
    """Shared by threads. `authorization` is the header of that name, empty for none."""

    def __init__(
        self, transport: Transport, *, authorization: str = "", tries: int = TRIES_MAX, world: World = REAL
    ) -> None:
        self.transport = transport
        self._headers = {"User-Agent": "esker"}
        if authorization:
            self._headers["Authorization"] = authorization
        self._tries = tries
        self._world = world

    # what all operations are made of

    def ask(
        self,
        method: str,
        *segments: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        again: bool = False,
        base: str = API,
    ) -> Answer:
        """The answer, its body unread, to a request for the path of these segments. Raises what an error says.

        A body that is no `Body` goes as JSON. `again`: doing it twice is as good as once.
        """
        for segment in segments:
            if segment in ("", ".", ".."):  # they would make another path of it
                raise InvalidError(Kind.INVALID_NAME, f"{segment!r} is no name")
            if "/" in segment:  # which no server can tell from one between segments
                raise InvalidError(Kind.INVALID_NAME, f"{segment!r} is no name: it has a '/'")
        target = base + "".join(f"/{quote(segment, safe='')}" for segment in segments)
        if query:
            target += "?" + urlencode(
                {name: _text(value) for name, value in query.items()}, doseq=True, quote_via=quote
            )
        sent = body if body is None or isinstance(body, Body) else _json(body)
        return self._send(method, target, {**self._headers, **(headers or {})}, sent, again=again or method in _READS)

    def call(self, method: str, *segments: str, **how: Any) -> Any:
        """The same, with the body read: what JSON it has, or None."""
        data = self.ask(method, *segments, **how).read()
        return msgspec.json.decode(data) if data else None

    def pages(
        self, *segments: str, query: Mapping[str, object] | None = None, most: int | None = None
    ) -> Iterator[Any]:
        """The results of a listing, page by page as they are wanted; at most so many."""
        after, left = str((query or {}).get("after") or ""), most
        while left is None or left > 0:
            amount = PAGE if left is None else min(PAGE, left)
            found = self.call("GET", *segments, query={**(query or {}), "after": after, "amount": amount})
            yield from found["results"]
            after = found["pagination"]["next_offset"]
            if not found["pagination"]["has_more"]:
                return
            if left is not None:
                left -= len(found["results"])

    def _send(self, method: str, target: str, headers: Mapping[str, str], body: Body | None, *, again: bool) -> Answer:
        reads = method in _READS
        for left in reversed(range(self._tries)):
            pause_s = 0.0
            try:
                answer = self.transport.send(method, target, headers, body)
            except LostError as error:
                if not left or (error.reached and not again):
                    raise _unanswered(error, reads=reads) from error
            else:
                answer.chunks = _told(answer.chunks, reads=reads)
                if answer.status < 400:
                    return answer
                if not left or answer.status not in _REFUSED:
                    raise failure(answer, reads=reads)
                refused = failure(answer, reads=reads)
                if isinstance(refused, ContentionError) and refused.hint:
                    raise refused  # whoever asked makes more of the next try
                pause_s = _seconds(answer.headers.get("retry-after"))
            self._pause(self._tries - 1 - left, pause_s)
        raise AssertionError("the last try answers or raises")

    def _pause(self, tried: int, least_s: float) -> None:
        longest = min(PAUSE_S * 2**tried, PAUSE_S_MAX)
        self._world.sleep(max(least_s, longest * (0.5 + self._world.chance() / 2)))

    # the server

    def config(self) -> Document:
        return _document(self.call("GET", "config"))

    def whoami(self) -> Document:
        return _document(self.call("GET", "user"))["user"]  # type: ignore[no-any-return]

    def login(self, key_id: str, secret: str) -> Document:
        """A session's token and when it ends; UnauthenticatedError if the key is not good."""
        body = {"access_key_id": key_id, "secret_access_key": secret}
        return _document(self.call("POST", "auth", "login", body=body, again=True))

    def ready(self) -> Answer:
        """Raises UnavailableError if the server's stores do not answer it."""
        return self.ask("GET", "_ready", base="")

    # repositories

    def repositories(self, prefix: str = "") -> Iterator[Document]:
        return self.pages("repositories", query={"prefix": prefix})

    def repository(self, repo: str) -> Document:
        return _document(self.call("GET", "repositories", repo))

    def create_repository(
        self,
        name: str,
        *,
        namespace: str = "",
        default_branch: str = "",
        metadata: Mapping[str, str] | None = None,
        read_only: bool = False,
    ) -> Document:
        body = {
            "name": name,
            "storage_namespace": namespace,
            "default_branch": default_branch or None,
            "metadata": metadata,
            "read_only": read_only,
        }
        return _document(self.call("POST", "repositories", body=body))

    def delete_repository(self, repo: str, *, force: bool = False) -> None:
        self.call("DELETE", "repositories", repo, query={"force": force})

    def repository_metadata(self, repo: str) -> dict[str, str]:
        return _document(self.call("GET", "repositories", repo, "metadata"))

    def protected(self, repo: str) -> list[str]:
        """Patterns of the branches that are protected."""
        return [rule["pattern"] for rule in self.call("GET", "repositories", repo, "settings", "branch_protection")]

    def protect(self, repo: str, patterns: Sequence[str]) -> None:
        """Replace them."""
        body = [{"pattern": pattern} for pattern in patterns]
        self.call("PUT", "repositories", repo, "settings", "branch_protection", body=body, again=True)

    def retention(self, repo: str) -> Document | None:
        """None: everything is kept."""
        try:
            return _document(self.call("GET", "repositories", repo, "settings", "gc_rules"))
        except NotFoundError as error:
            if error.kind is not Kind.RULES_NOT_FOUND:
                raise
            return None

    def set_retention(self, repo: str, default_days: int, branches: Mapping[str, int]) -> None:
        rules = [{"branch_id": name, "retention_days": days} for name, days in branches.items()]
        body = {"default_retention_days": default_days, "branches": rules}
        self.call("PUT", "repositories", repo, "settings", "gc_rules", body=body, again=True)

    def delete_retention(self, repo: str) -> None:
        self.call("DELETE", "repositories", repo, "settings", "gc_rules")

    def check(self, repo: str, *, deep: bool = False, blobs: bool = False) -> Generator[Document, None, None]:
        """What is wrong with a repository as it is stored; between, how many things were `looked` at. Closed before its
        end, it stops the check."""
        answer = self.ask("GET", "repositories", repo, "fsck", query={"deep": deep, "blobs": blobs})
        try:
            for line in _lines(answer.chunks):
                said = _document(msgspec.json.decode(line))
                if "error" in said:
                    raise error_of(said["status"], said["error"], reads=True)
                if said.get("done"):
                    return
                yield said
        finally:
            answer.close()
        raise UnavailableError(Kind.STORE_UNAVAILABLE, "the answer broke off before all was checked: try again")

    # branches and tags

    def branches(self, repo: str, *, prefix: str = "", hidden: bool = False) -> Iterator[Document]:
        return self.pages("repositories", repo, "branches", query={"prefix": prefix, "show_hidden": hidden})

    def branch(self, repo: str, name: str) -> Document:
        return _document(self.call("GET", "repositories", repo, "branches", name))

    def create_branch(self, repo: str, name: str, source: str, *, hidden: bool = False) -> str:
        """The id of the commit that it starts at."""
        body = {"name": name, "source": source, "hidden": hidden}
        return self.ask("POST", "repositories", repo, "branches", body=body).read().decode()

    def delete_branch(self, repo: str, name: str) -> None:
        self.call("DELETE", "repositories", repo, "branches", name)

    def layers(self, repo: str, branch: str) -> list[Document]:
        return _results(self.staged(repo, branch))

    def staged(self, repo: str, branch: str) -> Document:
        """Its layers, as `results`, and since when they are being compacted, if they are."""
        return _document(self.call("GET", "repositories", repo, "branches", branch, "layers"))

    def compact(self, repo: str, branch: str, *, minor: bool = False) -> bool:
        """Whether there was anything to fold."""
        query = {"kind": "minor" if minor else "major"}
        path = ("repositories", repo, "branches", branch, "compact")
        return bool(self.call("POST", *path, query=query, again=True)["compacted"])

    def tags(self, repo: str, prefix: str = "") -> Iterator[Document]:
        return self.pages("repositories", repo, "tags", query={"prefix": prefix})

    def tag(self, repo: str, name: str) -> Document:
        return _document(self.call("GET", "repositories", repo, "tags", name))

    def create_tag(self, repo: str, name: str, ref: str) -> Document:
        return _document(self.call("POST", "repositories", repo, "tags", body={"id": name, "ref": ref}))

    def delete_tag(self, repo: str, name: str) -> None:
        self.call("DELETE", "repositories", repo, "tags", name)

    # commits

    def commit(
        self, repo: str, branch: str, message: str, *, metadata: Mapping[str, str], allow_empty: bool = False
    ) -> Document:
        body = {"message": message, "metadata": metadata, "allow_empty": allow_empty}
        return _document(self.call("POST", "repositories", repo, "branches", branch, "commits", body=body))

    def commit_of(self, repo: str, ref: str) -> Document:
        return _document(self.call("GET", "repositories", repo, "commits", ref))

    def log(
        self,
        repo: str,
        ref: str,
        *,
        most: int | None = None,
        first_parent: bool = False,
        objects: Sequence[str] = (),
        prefixes: Sequence[str] = (),
    ) -> Iterator[Document]:
        query = {"first_parent": first_parent, "objects": objects, "prefixes": prefixes}
        return self.pages("repositories", repo, "refs", ref, "commits", query=query, most=most)

    def uncommitted(
        self, repo: str, branch: str, *, prefix: str = "", delimiter: str = "", most: int | None = None
    ) -> Iterator[Document]:
        query = {"prefix": prefix, "delimiter": delimiter}
        return self.pages("repositories", repo, "branches", branch, "diff", query=query, most=most)

    def diff(
        self,
        repo: str,
        left: str,
        right: str,
        *,
        three_dot: bool = False,
        prefix: str = "",
        delimiter: str = "",
        most: int | None = None,
    ) -> Iterator[Document]:
        kind = "three_dot" if three_dot else "two_dot"
        query = {"type": kind, "prefix": prefix, "delimiter": delimiter}
        return self.pages("repositories", repo, "refs", left, "diff", right, query=query, most=most)

    def merge_base(self, repo: str, source: str, branch: str) -> Document:
        return _document(self.call("GET", "repositories", repo, "refs", source, "merge", branch))

    def merge(
        self,
        repo: str,
        source: str,
        branch: str,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        strategy: str = "",
        squash: bool = False,
        allow_empty: bool = False,
        expected_head: str = "",
    ) -> str:
        """The id of the merge's commit. ConflictError has the paths that both sides changed."""
        body = {
            "message": message,
            "metadata": metadata,
            "strategy": strategy,
            "squash_merge": squash,
            "allow_empty": allow_empty,
            "expected_head": expected_head or None,
        }
        for tried in range(MERGE_TRIES_MAX):
            try:
                made = self.call("POST", "repositories", repo, "refs", source, "merge", branch, body=body)
            except ContentionError as error:
                if not error.hint or tried == MERGE_TRIES_MAX - 1:
                    raise
                body["hint"] = error.hint
                self._pause(tried, 0)
            else:
                return str(made["reference"])
        raise AssertionError("the last try answers or raises")

    def revert(
        self, repo: str, branch: str, ref: str, *, parent: int = 0, message: str = "", allow_empty: bool = False
    ) -> None:
        body: Document = {"ref": ref, "parent_number": parent, "allow_empty": allow_empty}
        if message:
            body["commit_overrides"] = {"message": message}
        self.call("POST", "repositories", repo, "branches", branch, "revert", body=body)

    def cherry_pick(self, repo: str, branch: str, ref: str, *, parent: int = 0, message: str = "") -> Document:
        body: Document = {"ref": ref, "parent_number": parent or None}
        if message:
            body["commit_overrides"] = {"message": message}
        return _document(self.call("POST", "repositories", repo, "branches", branch, "cherry-pick", body=body))

    def reset(self, repo: str, branch: str, *, path: str | None = None, prefix: str | None = None) -> None:
        """Drop what is staged: of one path, under a prefix, or all of it."""
        body = {"type": "reset"}
        if path is not None:
            body = {"type": "object", "path": path}
        elif prefix is not None:
            body = {"type": "common_prefix", "path": prefix}
        self.call("PUT", "repositories", repo, "branches", branch, body=body)

    def move(self, repo: str, branch: str, ref: str) -> None:
        self.call("PUT", "repositories", repo, "branches", branch, "hard_reset", query={"ref": ref}, again=True)

    # objects

    def objects(
        self, repo: str, ref: str, *, prefix: str = "", delimiter: str = "", after: str = "", most: int | None = None
    ) -> Iterator[Document]:
        query = {"prefix": prefix, "delimiter": delimiter, "after": after}
        return self.pages("repositories", repo, "refs", ref, "objects", "ls", query=query, most=most)

    def stat(self, repo: str, ref: str, path: str, *, presign: bool = False) -> Document:
        query = {"path": path, "presign": presign}
        return _document(self.call("GET", "repositories", repo, "refs", ref, "objects", "stat", query=query))

    def read(self, repo: str, ref: str, path: str, *, byte_range: str = "") -> Answer:
        """An object's bytes, or those of a range such as `0-99` or `-100`. The answer is closed by the caller."""
        headers = {"Range": f"bytes={byte_range}"} if byte_range else {}
        return self.ask("GET", "repositories", repo, "refs", ref, "objects", query={"path": path}, headers=headers)

    def may_upload(self, repo: str, branch: str, path: str) -> None:
        """Raises what an upload would, without sending it."""
        self.ask(
            "GET", "repositories", repo, "branches", branch, "objects", "stage_allowed", query={"path": path}
        ).read()

    def upload(
        self,
        repo: str,
        branch: str,
        path: str,
        body: Body,
        *,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
    ) -> Document:
        headers = {f"x-lakefs-meta-{key}": value for key, value in (metadata or {}).items()}
        if if_absent:
            headers["If-None-Match"] = "*"
        where = ("repositories", repo, "branches", branch, "objects")
        how: Document = {"query": {"path": path}, "body": body, "headers": headers, "again": not if_absent}
        return _document(self.call("POST", *where, **how))

    def copy(self, repo: str, ref: str, path: str, branch: str, target: str) -> Document:
        query, body = {"dest_path": target}, {"src_path": path, "src_ref": ref}
        return _document(
            self.call("POST", "repositories", repo, "branches", branch, "objects", "copy", query=query, body=body)
        )

    def delete(self, repo: str, branch: str, path: str) -> None:
        self.call("DELETE", "repositories", repo, "branches", branch, "objects", query={"path": path})

    def delete_prefix(self, repo: str, branch: str, prefix: str) -> None:
        """All that is under it; with an empty one, all there is."""
        where = ("repositories", repo, "branches", branch, "objects", "delete_prefix")
        self.ask("POST", *where, query={"prefix": prefix}).read()

    # stashes

    def stashes(self, repo: str, branch: str) -> list[Document]:
        return _results(self.call("GET", "repositories", repo, "branches", branch, "stashes"))

    def stash(self, repo: str, branch: str, name: str) -> None:
        self.call("POST", "repositories", repo, "branches", branch, "stashes", name)

    def pop(self, repo: str, branch: str, name: str, *, strategy: str = "") -> None:
        path = ("repositories", repo, "branches", branch, "stashes", name, "pop")
        self.call("POST", *path, query={"strategy": strategy})

    def drop_stash(self, repo: str, branch: str, name: str) -> None:
        self.call("DELETE", "repositories", repo, "branches", branch, "stashes", name)

    # what others bring: from elsewhere, or as jobs

    def start_import(
        self, repo: str, branch: str, sources: Sequence[Mapping[str, str]], message: str, metadata: Mapping[str, str]
    ) -> str:
        body = {"paths": sources, "commit": {"message": message, "metadata": metadata}}
        return str(self.call("POST", "repositories", repo, "branches", branch, "import", body=body)["id"])

    def import_status(self, repo: str, branch: str, name: str) -> Document:
        return _document(self.call("GET", "repositories", repo, "branches", branch, "import", query={"id": name}))

    def start_export(self, repo: str, ref: str, destination: str, *, since: str = "", prefix: str = "") -> str:
        body = {"destination": destination, "since": since, "prefix": prefix}
        return str(self.call("POST", "repositories", repo, "refs", ref, "export", body=body)["id"])

    def collect_garbage(self, repo: str, *, dry_run: bool = False) -> str:
        return str(self.call("POST", "repositories", repo, "gc", "run", body={"dry_run": dry_run})["id"])

    def tasks(self, repo: str) -> Iterator[Document]:
        return self.pages("repositories", repo, "tasks")

    def task(self, repo: str, task: str) -> Document:
        return _document(self.call("GET", "repositories", repo, "tasks", task))

    def cancel_task(self, repo: str, task: str) -> Document:
        return _document(self.call("POST", "repositories", repo, "tasks", task, "cancel"))

    def jobs(self, repo: str) -> Iterator[Document]:
        return self.pages("repositories", repo, "jobs")

    def abort_job(self, repo: str, job: str) -> Document:
        return _document(self.call("POST", "repositories", repo, "jobs", job, "abort", again=True))

    def clean_jobs(self, repo: str, older_than_s: float) -> list[Document]:
        """Those that were aborted for it."""
        query = {"older_than_s": older_than_s}
        found: list[Document] = self.call("POST", "repositories", repo, "jobs", "clean", query=query, again=True)[
            "aborted"
        ]
        return found

    # users

    def users(self) -> Iterator[Document]:
        return self.pages("auth", "users")

    def create_user(self, name: str) -> Document:
        return _document(self.call("POST", "auth", "users", body={"id": name}))

    def delete_user(self, name: str) -> None:
        self.call("DELETE", "auth", "users", name)

    def user(self, name: str) -> Document:
        return _document(self.call("GET", "auth", "users", name))

    def set_roles(self, name: str, roles: Sequence[Mapping[str, str]]) -> Document:
        return _document(self.call("PUT", "auth", "users", name, "roles", body={"roles": roles}, again=True))

    def keys(self, user: str) -> Iterator[Document]:
        return self.pages("auth", "users", user, "credentials")

    def create_key(self, user: str) -> Document:
        """With its secret: the only time that it is told."""
        return _document(self.call("POST", "auth", "users", user, "credentials"))

    def delete_key(self, user: str, key_id: str) -> None:
        self.call("DELETE", "auth", "users", user, "credentials", key_id)

    def close(self) -> None:
        self.transport.close()


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _json(body: object) -> Body:
    data = msgspec.json.encode(body)
    return Body(lambda: (data,), len(data), "application/json")


def _document(answer: Any) -> Document:
    assert isinstance(answer, dict)
    return answer


def _results(answer: Any) -> list[Document]:
    found: list[Document] = answer["results"]
    return found


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


def _seconds(header: str | None) -> float:
    """What a Retry-After asks for. A date is as good as none."""
    return min(float(header), PAUSE_S_MAX) if header and header.isdecimal() else 0.0


def _told(chunks: Iterator[bytes], *, reads: bool) -> Iterator[bytes]:
    """A body that may break off: that is an error like others."""
    try:
        yield from chunks
    except LostError as error:
        raise _unanswered(error, reads=reads) from error


def _unanswered(error: LostError, *, reads: bool) -> EskerError:
    if reads or not error.reached:
        return UnavailableError(Kind.STORE_UNAVAILABLE, f"{error}: check the address, and that it runs; or try again")
    return OutcomeUnknownError(
        Kind.OUTCOME_UNKNOWN,
        f"{error} before the answer came: what was asked may have been done; look before asking again",
    )
