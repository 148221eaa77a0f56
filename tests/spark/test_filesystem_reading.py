"""Reading: seeks, positioned and vectored reads, and how few calls they take."""

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.server.live import Live
from tests.spark.calls import counted
from tests.spark.files import Files, drained

SIZE = 3_000_000
DATA = random.Random(7).randbytes(SIZE)
END = "EOFException"


@pytest.fixture
def stream(files: Files) -> Any:
    files.write("f", DATA)
    with_data = files.fs.open(files.path("f"))
    yield with_data
    with_data.close()


def at(files: Files, stream: Any, position: int, length: int) -> bytes:
    """A positioned read, of all that was asked for."""
    buffer = files.buffer(length)
    stream.readFully(position, buffer)
    found: bytes = buffer.array()
    return found


def test_bytes_come_in_order_wherever_one_seeks(files: Files, stream: Any) -> None:
    for position in (0, 5, 4, 100_000, SIZE - 1, 99_990, 0, 2_999_000, 65_535, 65_536, 300_000, 299_999):
        stream.seek(position)
        assert stream.getPos() == position
        assert stream.read() == DATA[position]
        buffer = files.buffer(7)
        read = stream.read(buffer)
        assert buffer.array()[: max(read, 0)] == DATA[position + 1 : position + 8][: max(read, 0)]
        assert stream.getPos() == position + 1 + max(read, 0)


def test_a_seek_beyond_an_end_is_refused(files: Files, stream: Any) -> None:
    stream.seek(10)
    for position in (-1, SIZE + 1):
        with files.refused(END):
            stream.seek(position)
    assert stream.getPos() == 10
    stream.seek(SIZE)
    assert stream.read() == -1
    assert stream.read(files.buffer(10)) == -1
    assert stream.available() == 0


def test_a_positioned_read_moves_nothing(files: Files, stream: Any) -> None:
    stream.seek(1000)
    for position, length in ((0, 1), (5, 100), (SIZE - 10, 10), (70_000, 300_000), (123, 0)):
        assert at(files, stream, position, length) == DATA[position : position + length]
    assert stream.getPos() == 1000
    assert stream.read() == DATA[1000]
    for position, length in ((SIZE - 5, 6), (SIZE, 1), (-1, 1)):
        with files.refused(END):
            at(files, stream, position, length)
    assert stream.read(SIZE, files.buffer(3)) == -1


def test_a_closed_stream_is_not_read(files: Files, stream: Any) -> None:
    stream.close()
    stream.close()
    for read in (stream.read, lambda: stream.seek(1), lambda: at(files, stream, 0, 1), stream.available):
        with files.refused("IOException"):
            read()


def test_an_empty_file_is_read(files: Files) -> None:
    files.write("empty")
    stream = files.fs.open(files.path("empty"))
    assert stream.read() == -1
    stream.seek(0)
    with files.refused(END):
        stream.seek(1)
    stream.close()


@pytest.mark.parametrize("direct", [False, True])
def test_ranges_are_read_as_they_are_asked_for(files: Files, stream: Any, direct: bool) -> None:
    ranges = [(0, 100), (100, 100), (150_000, 1), (210_000, 200_000), (2_000_000, 900_000), (SIZE - 3, 3), (500_000, 0)]
    made = [files.hadoop.FileRange.createFileRange(start, length) for start, length in reversed(ranges)]
    stream.readVectored(files.list_of(*made), files.allocate(direct=direct))
    for one, (start, length) in zip(made, reversed(ranges), strict=True):
        buffer = one.getData().join()
        assert buffer.remaining() == length
        heap = files.buffer(length)
        heap.put(buffer)
        assert heap.array() == DATA[start : start + length]


def test_ranges_that_cannot_be_are_refused(files: Files, stream: Any) -> None:
    make = files.hadoop.FileRange.createFileRange
    with files.refused("IllegalArgumentException"):
        stream.readVectored(files.list_of(make(0, 10), make(5, 10)), files.allocate())
    for start, length in ((SIZE, 1), (-1, 1), (SIZE - 1, 2)):
        with files.refused(END, "IllegalArgumentException"):
            stream.readVectored(files.list_of(make(start, length)), files.allocate())


def test_a_listed_file_is_opened_without_a_call(files: Files, server: Live) -> None:
    files.write("d/f", DATA[:1000])
    status = files.fs.listStatus(files.path("d"))[0]
    with counted(server) as calls:
        opened = files.fs.openFile(files.path("d/f")).withFileStatus(status).build().get()
        opened.close()
    assert not calls


def thousand(server: Live, repo: str, count: int = 1000) -> str:
    """A commit with many files of five bytes; its id."""
    place = server.elsewhere / "five"
    place.write_bytes(b"hello")
    for number in range(count):
        made = server.ask(
            "PUT",
            f"/repositories/{repo}/branches/main/objects",
            query={"path": f"t/p={number % 50:02}/part-{number:04}"},
            body={"physical_address": place.as_uri(), "checksum": f"c{number}", "size_bytes": 5},
        )
        assert made.status == 201, made
    return server.commit(repo)


def test_a_scan_of_a_thousand_files_takes_no_call_for_each(spark: SparkSession, server: Live, repo: str) -> None:
    commit = thousand(server, repo)
    files = Files(spark, f"lakefs://{repo}/{commit}/")
    with counted(server) as listing:
        found = [one.getPath() for one in drained(files.fs.listFiles(files.path("t"), True))]
    assert len(found) == 1000
    assert listing == {"listObjects": 1}
    with counted(server) as reading:
        for path in found:
            assert files.fs.getFileStatus(path).getLen() == 5
            files.fs.open(path).close()
    assert not reading.keys() - {"getRepository"}


def test_who_was_told_only_names_asks_once_for_a_thousand(spark: SparkSession, server: Live, repo: str) -> None:
    """As an executor is: what the driver listed is not known to it. A tag is as good as a commit."""
    thousand(server, repo)
    server.ask("POST", f"/repositories/{repo}/tags", body={"id": "v1", "ref": "main"})
    files = Files(spark, f"lakefs://{repo}/v1/")
    names = sorted(f"t/p={number % 50:02}/part-{number:04}" for number in range(1000))
    with counted(server) as calls:
        for name in names:
            files.fs.open(files.path(name)).close()
    assert calls["listObjects"] == 1
    assert sum(calls.values()) <= 3, calls
    with counted(server) as by_urls:
        far = Files(spark, f"lakefs://{repo}/v1/", {"fs.lakefs.access.mode": "presigned"})
        for name in names[:50]:
            assert far.read(name) == b"hello"
    assert by_urls == {"listObjects": 1, "readBlob": 50}


def test_a_far_file_is_read_in_ever_larger_pieces(spark: SparkSession, server: Live, repo: str) -> None:
    files = Files(spark, f"lakefs://{repo}/main/", {"fs.lakefs.access.mode": "presigned"})
    files.write("f", DATA)
    stream = files.fs.open(files.path("f"))
    with counted(server) as calls:
        for start in range(0, SIZE, 100_000):
            assert stream.readNBytes(100_000) == DATA[start : start + 100_000]
    assert calls["readBlob"] <= 5, calls
    with counted(server) as vectored:
        ranges = [files.hadoop.FileRange.createFileRange(start, 1000) for start in range(0, 1_000_000, 10_000)]
        stream.readVectored(files.list_of(*ranges), files.allocate())
        assert all(one.getData().join().remaining() == 1000 for one in ranges)
    assert vectored["readBlob"] == 1, vectored
    stream.close()


def test_what_others_write_is_seen_soon_and_own_writes_at_once(spark: SparkSession, server: Live, repo: str) -> None:
    files = Files(spark, f"lakefs://{repo}/main/")
    files.write("f", b"one")
    assert files.read("f") == b"one"
    files.write("f", b"three")
    assert files.status("f").getLen() == 5
    assert files.read("f") == b"three"
    server.put(repo, "g", b"new")
    assert files.read("g") == b"new"  # absence is never remembered
    files.delete("f")
    assert not files.exists("f")


def test_a_file_is_opened_by_what_another_process_knew_of_it(spark: SparkSession, server: Live, repo: str) -> None:
    """A status that was sent from elsewhere has no entry in it, but a size and a time: it stands for what was seen."""
    files = Files(spark, f"lakefs://{repo}/main/")
    files.write("f", b"one")
    status = files.status("f")
    copy = files.hadoop.FileStatus(status)
    with counted(server) as calls:
        files.fs.openFile(files.path("f")).withFileStatus(copy).build().get().close()
    assert not calls
    other = files.hadoop.FileStatus(5, False, 1, 1, status.getModificationTime(), files.path("f"))
    stream = files.fs.openFile(files.path("f")).withFileStatus(other).build().get()
    assert stream.readAllBytes() == b"one"  # what is there now, then
    stream.close()


def test_text_is_read_by_rdds(spark: SparkSession, repo: str) -> None:
    """They look where a file's blocks are."""
    files = Files(spark, f"lakefs://{repo}/main/")
    files.write("t/a", b"1\n2\n")
    files.write("t/b", b"3\n")
    assert sorted(spark.sparkContext.textFile(f"lakefs://{repo}/main/t").collect()) == ["1", "2", "3"]


def test_a_stream_keeps_its_checkpoint_in_the_lake(spark: SparkSession, repo: str) -> None:
    files = Files(spark, f"lakefs://{repo}/main/")
    root = f"lakefs://{repo}/main"
    for number in range(2):
        files.write(f"in/{number}", f"{number}\n".encode())
        query = (
            spark.readStream.text(f"{root}/in")
            .writeStream.option("checkpointLocation", f"{root}/checkpoint")
            .trigger(availableNow=True)
            .start(f"{root}/out", format="parquet")
        )
        assert query.awaitTermination(120)
        assert spark.read.parquet(f"{root}/out").count() == number + 1
