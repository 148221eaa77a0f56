"""Blobs in an object store: S3 and what speaks like it, Google Cloud Storage, Azure, all through obstore.

Every write here may be repeated, so obstore's own retries are safe, and are the only ones.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from esker.errors import InvalidError, Kind, UnavailableError
from esker.stores.blob import (
    CHUNK_BYTES,
    NAME_BYTES_MAX,
    BlobInfo,
    BlobStore,
    Multipart,
    check_name,
    check_range,
)

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig  # only there for type checkers

PART_BYTES: Final = 16 << 20
"""Of a multipart upload. S3 takes 10,000 parts: blobs of up to 160 GB."""

PARTS_AT_ONCE: Final = 3
"""With `PART_BYTES`, what one upload may hold in memory."""

COPY_BYTES_MAX: Final = 5 << 30
"""S3 copies no more than this in one request."""

_DELETE_BATCH: Final = 1000
_LIST_PAGE: Final = 1000
_OFFSET_MAX: Final = 2**63 - 1

_RETRY: "Final[RetryConfig]" = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}
_CLIENT: "Final[ClientConfig]" = {
    "connect_timeout": "5s",
    "read_timeout": "60s",  # a stalled server is given up
    "timeout": "1d",  # of a whole request with its body: a stream lasts as long as its reader takes
    "allow_http": True,  # only for an endpoint that says http:// itself
}
_CLIENT_OPTIONS: Final = frozenset({"allow_invalid_certificates", "proxy_url", "proxy_excludes", "root_certificate"})

_ODD: Final = "Encountered object with invalid path: "
"""What obstore says when a listing has a name that it does not take."""

_ERRORS: Final = (BaseError, OSError, ValueError, NotImplementedError)
"""What obstore raises: its own, and builtin ones where they fit."""


class ObjectBlobs(BlobStore):
    """`scheme://bucket/prefix`, with obstore's options for the scheme (`endpoint`, `region`, `access_key_id`, ...),
    some of its HTTP client, and `path_style`.

    What no option says, obstore takes from the environment (`AWS_...`, `GOOGLE_...`, `AZURE_...`) or from the machine's
    own identity.
    """

    def __init__(
        self, scheme: str, bucket: str, prefix: str = "", options: Mapping[str, str] | None = None, retries: int = 5
    ) -> None:
        self.url = f"{scheme}://{bucket}" + (prefix and "/" + prefix)
        self._name_bytes_max = NAME_BYTES_MAX - len(prefix.encode()) - bool(prefix)
        self._reached = False
        self._scheme = scheme
        self._multipart: Multipart | None = None
        config: dict[str, Any] = dict(options or {})
        client: dict[str, Any] = {**_CLIENT, **{name: config.pop(name) for name in _CLIENT_OPTIONS & config.keys()}}
        if "path_style" in config:
            config["virtual_hosted_style_request"] = str(config.pop("path_style").lower() not in ("true", "1"))
        backend: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
        retry: RetryConfig = {**_RETRY, "max_retries": retries}
        try:
            self._store: S3Store | GCSStore | AzureStore = backend(
                bucket, prefix=prefix or None, config=config, client_options=client, retry_config=retry
            )
        except UnknownConfigurationKeyError as error:
            raise InvalidError(Kind.INVALID_ARGUMENT, f"{self.url}: {_brief(error)}") from error
        except _ERRORS as error:
            raise self._unavailable("open", "", error) from error

    def get(self, name: str) -> bytes | None:
        self._check(name)
        try:
            return bytes(obstore.get(self._store, name).bytes())
        except FileNotFoundError as error:
            self._check_bucket(name, error)
            return None
        except _ERRORS as error:
            raise self._unavailable("get", name, error) from error

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        self._check(name)
        check_range(start, length)
        if length == 0:
            return None if self.head(name) is None else b""
        try:
            return bytes(obstore.get_range(self._store, name, start=start, end=min(start + length, _OFFSET_MAX)))
        except FileNotFoundError as error:
            self._check_bucket(name, error)
            return None
        except _ERRORS as error:
            return self._past_end(name, start, error)

    def stream(self, name: str, start: int = 0, length: int | None = None) -> Iterator[bytes] | None:
        self._check(name)
        check_range(start, length)
        if length == 0:
            return None if self.head(name) is None else iter(())
        try:
            if length is not None:
                end = min(start + length, _OFFSET_MAX)
                result = obstore.get(self._store, name, options={"range": (start, end)})
            elif start:
                result = obstore.get(self._store, name, options={"range": {"offset": start}})
            else:
                result = obstore.get(self._store, name)
        except FileNotFoundError as error:
            self._check_bucket(name, error)
            return None
        except _ERRORS as error:
            return None if self._past_end(name, start, error) is None else iter(())
        return self._chunks(name, result.stream(min_chunk_size=CHUNK_BYTES))

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._check(name)
        view = memoryview(data).cast("B")
        try:
            obstore.put(self._store, name, view, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        except _ERRORS as error:
            raise self._unavailable("put", name, error) from error

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        self._check(name)
        with ThreadPoolExecutor(1, thread_name_prefix="esker-upload") as reader:
            source = _Source(chunks, reader)
            try:
                obstore.put(
                    self._store,
                    name,
                    iter(source),
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_AT_ONCE,
                )
            except _ERRORS as error:
                if source.error is not None:
                    raise source.error from None
                raise self._unavailable("put", name, error) from error
            return source.size

    def head(self, name: str) -> BlobInfo | None:
        self._check(name)
        try:
            return _info(obstore.head(self._store, name))
        except FileNotFoundError as error:
            self._check_bucket(name, error)
            return None
        except _ERRORS as error:
            raise self._unavailable("look at", name, error) from error

    def list(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        parents, slash, start = prefix.rpartition("/")
        if (slash and _longest_path(parents) != parents) or (start and not _is_text(start)):
            return
        # obstore lists whole directories only. The offset spares it most of what comes before; the rest is passed over.
        offset = max(_longest_path(after), _longest_path(_just_before(prefix)))
        try:
            for page in obstore.list(self._store, parents or None, offset=offset or None, chunk_size=_LIST_PAGE):
                for meta in page:
                    info = _info(meta)
                    if not info.name.startswith(prefix):
                        if info.name > prefix:
                            return
                    elif info.name > after:
                        yield info
        except _ERRORS as error:
            raise self._unavailable("list", prefix, error) from error

    def delete(self, names: Iterable[str]) -> None:
        remaining = iter(names)
        while batch := [self._check(name) for name in islice(remaining, _DELETE_BATCH)]:
            try:
                obstore.delete(self._store, batch)
            except FileNotFoundError:
                # Google and Azure say so if one was missing, and then it is unknown which others were deleted.
                for name in batch:
                    self._delete(name)
            except _ERRORS as error:
                raise self._unavailable("delete", batch[0], error) from error

    def copy(self, source: str, target: str) -> bool:
        self._check(source)
        self._check(target)
        if source == target:  # S3 refuses to
            return self.head(source) is not None
        try:
            obstore.copy(self._store, source, target)
        except FileNotFoundError as error:
            self._check_bucket(source, error)
            return False
        except _ERRORS as error:
            info = self.head(source)
            if info is None or info.size <= COPY_BYTES_MAX:
                raise self._unavailable("copy", source, error) from error
            chunks = self.stream(source)
            if chunks is None:
                return False
            self.put_stream(target, chunks)
        return True

    def presign(self, method: str, name: str, seconds: int) -> str | None:
        self._check(name)
        if method not in ("GET", "PUT"):
            raise InvalidError(Kind.INVALID_ARGUMENT, f"a URL can be signed for GET or PUT, not for {method!r}")
        try:
            return obstore.sign(self._store, "GET" if method == "GET" else "PUT", name, timedelta(seconds=seconds))
        except _ERRORS as error:
            raise self._unavailable("sign a URL of", name, error) from error

    def multipart(self) -> Multipart | None:
        """S3's, which obstore does not sign: its SDK does, if it is installed."""
        if self._scheme != "s3" or find_spec("boto3") is None:
            return None
        if self._multipart is None:
            from esker.stores.s3_multipart import S3Multipart

            probe = self.presign("GET", "x", 1)
            assert probe is not None
            self._multipart = S3Multipart(self.url, probe, self._store.config)
        return self._multipart

    def _check(self, name: str) -> str:
        if len(check_name(name).encode()) > self._name_bytes_max:
            raise InvalidError(
                Kind.INVALID_PATH, f"a blob name below {self.url} has at most {self._name_bytes_max} bytes"
            )
        return name

    def _check_bucket(self, name: str, error: Exception) -> None:
        """Before a first "not found" is believed: S3 says the same where the whole bucket is missing."""
        if not self._reached:
            try:
                next(iter(obstore.list(self._store, chunk_size=1)), None)
            except (PermissionDeniedError, UnauthenticatedError):
                pass  # whoever may not list is told so by a bucket that exists
            except _ERRORS:
                raise self._unavailable("find", name, error) from error
            self._reached = True

    def _past_end(self, name: str, start: int, error: Exception) -> bytes | None:
        """Whether a refused range was only one that starts at or after the end: stores differ in how they say that."""
        info = self.head(name)
        if info is not None and start < info.size:
            raise self._unavailable("get", name, error) from error
        return None if info is None else b""

    def _chunks(self, name: str, stream: Iterable[Any]) -> Iterator[bytes]:
        try:
            for received in stream:
                view = memoryview(received)
                for at in range(0, len(view), CHUNK_BYTES):
                    yield bytes(view[at : at + CHUNK_BYTES])
        except _ERRORS as error:
            raise self._unavailable("read on in", name, error) from error

    def _delete(self, name: str) -> None:
        try:
            obstore.delete(self._store, name)
        except FileNotFoundError:
            pass
        except _ERRORS as error:
            raise self._unavailable("delete", name, error) from error

    def _unavailable(self, verb: str, name: str, error: Exception) -> UnavailableError | InvalidError:
        if _ODD in str(error):
            said = _brief(error).partition(_ODD)[2]
            return InvalidError(
                Kind.INVALID_PATH, f"{self.url}: an object below {name!r} has a name that no blob can have, {said}"
            )
        match error:
            case FileNotFoundError():
                way_out = "there is no such bucket: create it, or correct the URL"
            case PermissionError() | PermissionDeniedError() | UnauthenticatedError():
                way_out = (
                    "the store refuses these credentials: check the options, the environment and the store's rules"
                )
            case _:
                way_out = "check the bucket, the endpoint, the region, the credentials and the network, and try again"
        what = f" {name!r}" if name else ""
        return UnavailableError(Kind.STORE_UNAVAILABLE, f"{self.url}: cannot {verb}{what}; {way_out} ({_brief(error)})")


class _Source:
    """Chunks on their way into an upload: how many bytes passed, and what their maker raised, if it did.

    They are made in another thread: obstore asks for them from within its own loop, where nothing may call it, and they
    may come from another store of its own.
    """

    def __init__(self, chunks: Iterable[bytes], reader: ThreadPoolExecutor) -> None:
        self._chunks = iter(chunks)
        self._reader = reader
        self.size = 0
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            while (chunk := self._reader.submit(next, self._chunks, None).result()) is not None:
                self.size += len(chunk)
                yield chunk
        except BaseException as error:
            self.error = error
            raise


def _info(meta: Any) -> BlobInfo:
    return BlobInfo(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))


def _is_text(part: str) -> bool:
    """Whether a name may hold this."""
    try:
        check_name("x" + part)
    except InvalidError:
        return False
    return True


def _longest_path(text: str) -> str:
    """The longest beginning of the text that obstore takes for a path: not after the text, and mostly all of it."""
    parts: list[str] = []
    for part in text.split("/"):
        if part in ("", ".", "..") or not _is_text(part):
            break
        parts.append(part)
    return "/".join(parts)


def _just_before(prefix: str) -> str:
    """A text before all that begin with `prefix`, and after almost all that come before those."""
    if not prefix or prefix.endswith("/"):
        return ""
    return prefix[:-1] + chr(max(ord(prefix[-1]) - 1, 0)) + "~"


def _brief(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
