"""What the benchmarks of the tree work on: a lake of Spark tables, and changes to it."""

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from esker.streams.entries import SCHEMA

FILES_A_DIRECTORY = 1000
_BATCH = 50_000


def directory(day: int) -> str:
    year, month, hour = 2020 + day // 8064, day // 672 % 12 + 1, day % 24
    table = "warehouse/analytics/clickstream_events"
    return f"{table}/year={year}/month={month:02d}/day={day // 24 % 28 + 1:02d}/hour={hour:02d}"


def entries(n: int, start: int = 0) -> Iterator[pa.Table]:
    """`n` sorted entries: paths of about 150 bytes, a thousand a directory, MD5 checksums, random addresses."""
    for first in range(start, start + n, _BATCH):
        yield rows(np.arange(first, min(first + _BATCH, start + n)))


def rows(numbers: np.ndarray, version: int = 0) -> pa.Table:
    """The entries with these numbers; another version has other content at the same paths."""
    names, addresses, checksums = [], [], []
    for number in numbers.tolist():
        name = hashlib.md5(f"name {number}".encode()).hexdigest()
        content = hashlib.md5(f"{version} {number}".encode()).hexdigest()
        part = number % FILES_A_DIRECTORY
        names.append(
            f"{directory(number // FILES_A_DIRECTORY)}/part-{part:05d}-"
            f"{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}.c000.snappy.parquet"
        )
        checksums.append(content)
        addresses.append(f"data/{name[:4]}/{content[::-1]}{name[4:8]}")
    sizes = (numbers * 7919 + version) % 100_000_000 + 1000
    mtimes = 1_700_000_000_000 + numbers * 13 + version
    n = len(names)
    return pa.table(
        [
            pa.array(names),
            pa.array(addresses),
            pa.array(sizes.astype(np.int64)),
            pa.array(checksums),
            pa.array(mtimes.astype(np.int64)).cast(SCHEMA.field("mtime").type),
            pa.array(["application/octet-stream"] * n),
            pa.array([""] * n),
        ],
        schema=SCHEMA,
    )
