"""Prepared layers: any number of sorted entries, laid on a branch at once.

    1. check    every row, so that a bad one refuses all
    2. write    tables, to which nothing points yet                    staging
    3. lay      them as one layer, in one swap, if the caller's expectations hold at that very moment     refs

Sources are Arrow tables or Parquet files with the columns of `streams.entries.SCHEMA`, and `tombstone` if some rows are
deletions. Each is sorted by path; together they need not be, but no path may stand twice. If they follow each other,
little more than one is in memory at a time; if they interleave, all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from esker.engine import layers, metrics, pressure, protection, repositories
from esker.engine.entries import check_path, check_prefix, page_of
from esker.engine.lake import Lake
from esker.engine.protection import Action
from esker.engine.snapshots import of_record, present
from esker.errors import EskerError, InvalidError, Kind, OutcomeUnknownError, PreconditionError
from esker.model import CommitID, Entry, FileName, Layer, Repository, Table
from esker.refs.records import Branch
from esker.staging.tables import ROWS, TABLES_MAX
from esker.streams.arrays import Bools, bools, only_chunk
from esker.streams.entries import CHANGES, NO_CHANGES, SCHEMA, TEXTS, as_changes, check, metadata_in, metadata_text
from esker.streams.rows import Changes

Source: TypeAlias = pa.Table | bytes | Path | str
"""A table; a Parquet file's bytes; a file of this machine; or the address of one, as an entry has it."""

DELETES_MAX: Final = 100_000
SOURCES_MAX: Final = 100_000

_KEPT_BYTES_MAX: Final = 256 << 20
"""Of rows that were checked, until they are written."""

OWN: Final = "data/"
"""Where the repository's own blobs lie."""

_BAD_PART: Final = r"(^|/)\.{0,2}(/|$)"
_BAD_URL: Final = r"^[^:/]*[^a-z0-9:/][^:/]*://|^[^:]+:///?[^/]*%|[\x00-\x1f\x7f]"
"""A scheme or bucket that could be spelled in another way, or what no URL has."""


@metrics.measured("append")
def append(
    lake: Lake,
    repo: Repository,
    branch: str,
    sources: Source | Sequence[Source],
    *,
    deletes: Iterable[str] = (),
    expect_absent: Sequence[str] = (),
    expect_head: CommitID | None = None,
    allowed: Sequence[str] | None = None,
) -> int:
    """Lay all rows of the sources on `branch` as one layer, over the deletion of everything under the prefixes
    `deletes`: how many rows. InvalidError names the first bad row, and then nothing has changed.

    PreconditionError unless, at the very moment at which the layer is laid, each path of `expect_absent` is absent
    (one that ends with `/`: everything under it) and the branch points at `expect_head`. What has to be absent is what
    lies below the layer, whatever its own `deletes` hide.

    `allowed` are the beginnings of addresses that rows may have. By default, they are the repository's own data, and
    URLs outside of every repository.
    """
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    prefixes = tuple(deletes)
    if len(prefixes) > DELETES_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"a layer has up to {DELETES_MAX} deleted prefixes")
    for prefix in prefixes:
        check_prefix(prefix)
    for path in expect_absent:
        check_path(path)
    pressure.make_room(lake, repo, branch)
    given = [sources] if isinstance(sources, pa.Table | bytes | Path | str) else [*sources]
    if len(given) > SOURCES_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"a layer has up to {SOURCES_MAX} sources")
    checked = _Checked(lake, repo, given, allowed)
    layer: Layer | None = None

    def as_expected(seen: Branch) -> Layer | None:
        nonlocal layer
        if expect_head is not None and seen.commit != expect_head:
            raise PreconditionError(
                Kind.HEAD_MOVED,
                f"branch {branch!r} of {repo.name!r} is at {seen.commit[:12]}, not at {expect_head[:12]} as was "
                "expected",
            )
        for path in expect_absent:
            there = _found(lake, repo, seen, path)
            if there is not None:
                raise layers.already_there(repo, branch, there)
        if layer is None and (checked.count or prefixes):
            layer = _write(lake, repo, branch, checked, prefixes)
        return layer

    try:
        if expect_absent or expect_head is not None:
            layers.lay_upon(lake, repo, branch, as_expected)
        elif checked.count or prefixes:
            layer = _write(lake, repo, branch, checked, prefixes)
            layers.lay(lake, repo, branch, layer)
    except OutcomeUnknownError:
        raise
    except EskerError:
        _take_away(lake, repo, layer.files if layer else ())
        raise
    return checked.count


def _take_away(lake: Lake, repo: Repository, files: Iterable[FileName]) -> None:
    """Delete tables to which nothing points. If that fails, they are garbage."""
    with suppress(EskerError):
        for file in files:
            lake.tables(repo).delete(file)


def _found(lake: Lake, repo: Repository, record: Branch, path: str) -> str | None:
    """What is at a path, or under one that ends with `/`."""
    if not path.endswith("/"):
        return path if present(lake, repo, record, path) else None
    for item in page_of(lake, repo, of_record(lake, repo, record, record.layers), prefix=path, amount=1).items:
        assert isinstance(item, Entry), "a listing without delimiter has no common prefixes"
        return item.path
    return None


def _write(lake: Lake, repo: Repository, branch: str, checked: "_Checked", prefixes: tuple[str, ...]) -> Layer:
    """The layer. If that fails, what is already written of it is taken away."""
    written: list[Table] = []
    rows = max(ROWS, -(-checked.count // TABLES_MAX))
    try:
        for piece in _pieces(checked.in_order(), rows):
            written += lake.tables(repo).write(piece, f"{branch}/L1", rows)
        return layers.write(lake, repo, f"{branch}/L1", Changes(NO_CHANGES, prefixes), tuple(written))
    except BaseException:
        _take_away(lake, repo, [table.file for table in written])
        raise


def _pieces(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of so many."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        while count + table.num_rows >= rows:
            yield pa.concat_tables([*waiting, table.slice(0, rows - count)]).combine_chunks()
            table = table.slice(rows - count)
            waiting, count = [], 0
        waiting.append(table)
        count += table.num_rows
    if count:
        yield pa.concat_tables(waiting).combine_chunks()


class _Checked:
    """Sources whose rows have all been found good when they are handed out."""

    def __init__(self, lake: Lake, repo: Repository, sources: Sequence[Source], allowed: Sequence[str] | None) -> None:
        self._lake = lake
        self._repo = repo
        self._sources = sources
        self._allowed = allowed
        self._kept: dict[int, pa.Table] = {}
        self._kept_bytes = 0
        self.count = 0
        bounds: list[tuple[str, str, int]] = []
        for number in range(len(sources)):
            rows = self._rows(number)
            self.count += rows.num_rows
            if rows.num_rows:
                bounds.append((rows["path"][0].as_py(), rows["path"][-1].as_py(), number))
        bounds.sort()
        self._order = [number for _, _, number in bounds]
        self._follow_each_other = all(one[1] < other[0] for one, other in pairwise(bounds))

    def in_order(self) -> Iterator[pa.Table]:
        """All rows, sorted."""
        if self._follow_each_other:
            for number in self._order:
                yield self._rows(number)
            return
        rows = pa.concat_tables([self._rows(number) for number in self._order]).combine_chunks()
        rows = rows.take(pc.sort_indices(rows["path"])).combine_chunks()
        paths = only_chunk(rows["path"])
        twice = bools(pc.equal(paths[1:], paths[:-1]))
        if twice.any():
            raise InvalidError(
                Kind.INVALID_BATCH,
                f"two of the sources have {paths[int(twice.argmax())].as_py()!r}: a path stands once",
            )
        yield rows

    def _rows(self, number: int) -> pa.Table:
        """The rows of a source. What is not kept is read, and so checked, again."""
        if number in self._kept:
            return self._kept[number]
        source = self._sources[number]
        where = "" if len(self._sources) == 1 else f"source {number}, "
        if isinstance(source, Path | str):
            where = f"{source}, "
        try:
            rows = self._good(self._table(source))
        except InvalidError as error:
            raise InvalidError(error.kind, where + error.message) from None
        if self._kept_bytes + rows.nbytes <= _KEPT_BYTES_MAX:
            self._kept[number] = rows
            self._kept_bytes += rows.nbytes
        return rows

    def _table(self, source: Source) -> pa.Table:
        if isinstance(source, pa.Table):
            return source
        try:
            if isinstance(source, Path):
                with source.open("rb") as file:
                    return pq.ParquetFile(file).read()
            data = source if isinstance(source, bytes) else self._fetch(source)
            return pq.ParquetFile(pa.BufferReader(data)).read()
        except (pa.ArrowException, ValueError) as error:
            raise InvalidError(Kind.INVALID_BATCH, f"this is no Parquet file that can be read: {error}") from None
        except OSError as error:
            raise InvalidError(Kind.INVALID_ARGUMENT, f"cannot read it: {error}") from None

    def _fetch(self, address: str) -> bytes:
        blobs, name = self._lake.locate(self._repo, address)
        data = blobs.get(name)
        if data is None:
            raise InvalidError(Kind.INVALID_ADDRESS, "there is nothing")
        return data

    def _good(self, table: pa.Table) -> pa.Table:
        """The table as `CHANGES`, if all is well with every row."""
        unknown = [name for name in table.column_names if name not in CHANGES.names]
        if unknown or len(set(table.column_names)) < len(table.column_names):
            raise InvalidError(
                Kind.INVALID_BATCH,
                f"{unknown[0]!r} is no column of entries" if unknown else "a column stands twice",
            )
        rows = check(table, CHANGES) if "tombstone" in table.column_names else as_changes(check(table, SCHEMA))
        if not rows.num_rows:
            return rows
        for name in TEXTS:
            column = only_chunk(rows[name])
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                bad = np.array([not _is_utf8(value) for value in column.cast(pa.binary()).to_pylist()])
                raise InvalidError(Kind.INVALID_BATCH, f"row {int(bad.argmax())}: {name} is not valid UTF-8") from None
        gone = bools(rows["tombstone"])
        if gone.any():
            for name in TEXTS[1:]:
                _refuse(rows, gone & bools(pc.not_equal(only_chunk(rows[name]), "")), f"a deletion has no {name}")
        self._check_metadata(rows)
        self._check_addresses(rows, ~gone)
        return rows

    def _check_metadata(self, rows: pa.Table) -> None:
        """Canonical, so that equal metadata is equal text."""
        for text in pc.unique(only_chunk(rows["metadata"])).to_pylist():
            if not text:
                continue
            try:
                good = metadata_text(metadata_in(text)) == text
            except (msgspec.DecodeError, ValueError):
                good = False
            if not good:
                _refuse(
                    rows,
                    bools(pc.equal(rows["metadata"], text)),
                    "metadata is a JSON object of text to text, its keys sorted, without spaces; or empty",
                )

    def _check_addresses(self, rows: pa.Table, puts: Bools) -> None:
        addresses = only_chunk(rows["address"])
        own = bools(pc.starts_with(addresses, OWN))
        url = bools(pc.match_substring(addresses, "://"))
        if self._allowed is not None:
            allowed = np.zeros(len(addresses), dtype=bool)
            for start in self._allowed:
                allowed |= bools(pc.starts_with(addresses, start))
            _refuse(rows, puts & ~allowed, f"an address here begins with {' or '.join(map(repr, self._allowed))}")
        else:
            _refuse(rows, puts & ~own & ~url, f"an address begins with {OWN!r}, or is a URL")
        _refuse(rows, puts & own & url, "an address is a URL, or not")
        # A look at all is cheap, one by expressions is not: most addresses have nothing that needs it.
        plain = ~url & ~bools(pc.match_substring(addresses, "/.")) & ~bools(pc.match_substring(addresses, "//"))
        odd = np.flatnonzero(puts & ~plain)
        if len(odd):
            some = addresses.take(pa.array(odd))
            bad = np.zeros(len(addresses), dtype=bool)
            rest = pc.replace_substring_regex(some, r"^[^:/]+:///?", "")
            bad[odd] = bools(pc.match_substring_regex(rest, _BAD_PART)) | bools(
                pc.match_substring_regex(some, _BAD_URL)
            )
            _refuse(rows, bad, "an address has no empty, '.' or '..' parts, and one spelling")
            if self._allowed is None:
                self._refuse_those_of_repositories(rows, puts & url)
        _refuse(rows, puts & bools(pc.ends_with(addresses, "/")), "an address names one object")

    def _refuse_those_of_repositories(self, rows: pa.Table, urls: Bools) -> None:
        if not urls.any():
            return
        addresses = only_chunk(rows["address"])
        for repo in repositories.every(self._lake):
            for namespace in {repo.namespace, unquote(repo.namespace)}:  # addresses are not quoted
                inside = urls & bools(pc.starts_with(addresses, namespace.rstrip("/") + "/"))
                _refuse(rows, inside, f"the data of repository {repo.name!r} is not to be named by URL")


def _refuse(rows: pa.Table, bad: Bools, why: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise InvalidError(Kind.INVALID_BATCH, f"row {row} ({rows['path'][row].as_py()!r}): {why}")


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
