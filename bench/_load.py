"""Load on a server, from processes of its own: `python -m bench._load --endpoint URL --access-key-id ID ...`.

It speaks the lakeFS API and nothing of any server's own, so that servers can be measured beside each other. Clients are
connections, each of which sends its next request as soon as it has the answer to the last. One thread serves hundreds
of them on raw sockets, with requests that were made before: what is measured is to be the server.
"""

import argparse
import json
import multiprocessing
import select
import socket
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from statistics import quantiles
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

API: Final = "/api/v1"
OBJECTS: Final = 5000
PAGE: Final = 1000
_UPLOADERS: Final = 16
_READ_BYTES: Final = 1 << 18
_TIMEOUT_S: Final = 60.0


class Target(NamedTuple):
    """A server, and who asks."""

    host: str
    port: int
    authorization: str = ""

    def request(self, method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
        """One request, as it goes over the wire."""
        return self.head(method, path, len(body), content_type) + body

    def head(self, method: str, path: str, size: int, content_type: str = "application/octet-stream") -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        if self.authorization:
            lines.append(f"Authorization: {self.authorization}")
        if size or method in ("POST", "PUT"):
            lines += [f"Content-Type: {content_type}", f"Content-Length: {size}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def connect(self) -> socket.socket:
        connection = socket.create_connection((self.host, self.port), _TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


class Outcome(NamedTuple):
    """Of a run: how many answers there were of each status, 0 for a connection that broke; how long those took that
    were good, and those that turned a client away."""

    seconds: float
    statuses: Counter[int]
    good_s: list[float]
    refused_s: list[float]

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return len(self.good_s) / self.seconds

    def __str__(self) -> str:
        others = {status: count for status, count in sorted(self.statuses.items()) if not 200 <= status < 300}
        told = f"{self.rate:,.0f}/s, {_times(self.good_s)}"
        return (
            told + (f"; turned away: {_times(self.refused_s)}" if self.refused_s else "") + f" {others or ''}".rstrip()
        )


def target_of(url: str, key: tuple[str, str] | None = None) -> Target:
    parts = urlsplit(url)
    if parts.scheme != "http":
        raise SystemExit(f"{url}: only http:// is measured; name what is behind TLS")
    login = "Basic " + b64encode(":".join(key).encode()).decode() if key else ""
    return Target(parts.hostname or "127.0.0.1", parts.port or 80, login)


def run(target: Target, requests: Sequence[bytes], *, clients: int, seconds: float, processes: int = 1) -> Outcome:
    """What came of so many clients that ask for these in turn, for so long. The processes are not this one."""
    context = multiprocessing.get_context("spawn")
    begin = context.Barrier(processes)
    results = context.Queue()
    shares = [clients // processes + (at < clients % processes) for at in range(processes)]
    started = [
        context.Process(target=_child, args=(target, requests, share, seconds, begin, results)) for share in shares
    ]
    for process in started:
        process.start()
    found: list[Outcome] = [results.get(timeout=seconds + 2 * _TIMEOUT_S) for _ in started]
    for process in started:
        process.join()
    return Outcome(
        seconds,
        sum((one.statuses for one in found), Counter()),
        [took for one in found for took in one.good_s],
        [took for one in found for took in one.refused_s],
    )


def _child(target: Target, requests: Sequence[bytes], clients: int, seconds: float, begin: Any, results: Any) -> None:
    begin.wait(_TIMEOUT_S)
    results.put(ask(target, requests, clients, seconds))


class _Client:
    """One connection, and the answer that it waits for."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.socket = target.connect()
        self._got = bytearray()
        self._size: int | None = None
        """Of the whole answer, once its head is here; None before, and of one in chunks."""
        self.status = 0
        self.sent_s = 0.0

    def send(self, request: bytes) -> None:
        self._got.clear()
        self._size, self.status = None, 0
        self.sent_s = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Whether the answer is complete. ConnectionError if it never will be."""
        data = self.socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionError
        self._got += data
        if not self.status:
            end = self._got.find(b"\r\n\r\n")
            if end < 0:
                return False
            self.status = int(self._got[9:12])
            head = bytes(self._got[:end]).lower()
            at = head.find(b"\r\ncontent-length:")
            if at >= 0:
                self._size = end + 4 + int(head[at + 17 :].split(b"\r\n", 1)[0])
            elif b"\r\ntransfer-encoding: chunked" not in head:
                self._size = end + 4
        return len(self._got) >= self._size if self._size is not None else self._got.endswith(b"\r\n0\r\n\r\n")


def ask(target: Target, requests: Sequence[bytes], clients: int, seconds: float) -> Outcome:
    """`run`, in this process."""
    poll = select.epoll()
    connected: dict[int, _Client] = {}
    statuses: Counter[int] = Counter()
    good: list[float] = []
    refused: list[float] = []
    following = cycle(requests)

    def start() -> None:
        client = _Client(target)
        connected[client.socket.fileno()] = client
        poll.register(client.socket, select.EPOLLIN)
        client.send(next(following))

    for _ in range(clients):
        start()
    end_s = time.perf_counter() + seconds
    while (now_s := time.perf_counter()) < end_s:
        for fd, _ in poll.poll(end_s - now_s):
            client = connected[fd]
            try:
                if not client.receive():
                    continue
                now_s = time.perf_counter()
                statuses[client.status] += 1
                if 200 <= client.status < 300:
                    good.append(now_s - client.sent_s)
                elif client.status in (429, 503):
                    refused.append(now_s - client.sent_s)
                client.send(next(following))
            except OSError:
                statuses[0] += 1
                del connected[fd]
                poll.unregister(fd)
                client.socket.close()
                start()
    for client in connected.values():
        client.socket.close()
    return Outcome(seconds, statuses, good, refused)


def send_all(target: Target, requests: Sequence[bytes], *, clients: int = _UPLOADERS) -> Counter[int]:
    """Each of these requests once, from so many clients: how many answers there were of each status."""
    poll = select.epoll()
    connected: dict[int, _Client] = {}
    statuses: Counter[int] = Counter()
    waiting = iter(requests)
    for request in islice(waiting, clients):
        client = _Client(target)
        connected[client.socket.fileno()] = client
        poll.register(client.socket, select.EPOLLIN)
        client.send(request)
    while connected:
        for fd, _ in poll.poll(_TIMEOUT_S):
            client = connected[fd]
            if not client.receive():
                continue
            statuses[client.status] += 1
            following = next(waiting, None)
            if following is None:
                poll.unregister(fd)
                connected.pop(fd).socket.close()
            else:
                client.send(following)
    return statuses


def upload(target: Target, method: str, path: str, chunk: bytes, count: int) -> int:
    """Send a body of `count` chunks: the status."""
    client = _Client(target)
    client.send(target.head(method, path, len(chunk) * count))
    for _ in range(count):
        client.socket.sendall(chunk)
    while not client.receive():
        pass
    client.socket.close()
    return client.status


def download(target: Target, path: str) -> int:
    """How many bytes of a body there were."""
    connection = target.connect()
    connection.sendall(target.request("GET", path))
    room = memoryview(bytearray(1 << 20))
    got, expected, head = 0, None, b""
    while expected is None or got < expected:
        count = connection.recv_into(room)
        if not count:
            break
        got += count
        if expected is None:
            head += bytes(room[:count])
            front, separator, rest = head.partition(b"\r\n\r\n")
            if separator:
                expected = int(front.lower().partition(b"\r\ncontent-length:")[2].split(b"\r\n", 1)[0])
                got = len(rest)
    connection.close()
    return got


# What there is to be asked of a lakeFS-compatible server


def path_of(number: int) -> str:
    return f"warehouse/events/day={number // 100:03d}/part-{number % 100:05d}.snappy.parquet"


def prepare(target: Target, repository: str, namespace: str, objects: int = OBJECTS) -> None:
    """A repository with so many committed objects; nothing, if it is there."""
    creation = {"name": repository, "storage_namespace": namespace, "default_branch": "main"}
    made = send_all(target, [target.request("POST", f"{API}/repositories", json.dumps(creation).encode())])
    if made[409]:
        return
    assert made[201] == 1, f"the repository was not created: {made}"
    statuses = send_all(target, [upload_of(target, repository, path_of(number)) for number in range(objects)])
    assert statuses[201] == objects, statuses
    commit = target.request(
        "POST", f"{API}/repositories/{repository}/branches/main/commits", json.dumps({"message": "objects"}).encode()
    )
    assert send_all(target, [commit])[201] == 1


def upload_of(target: Target, repository: str, path: str) -> bytes:
    where = f"{API}/repositories/{repository}/branches/main/objects?path={quote(path, safe='')}"
    return target.request("POST", where, b"x" * 100, "application/octet-stream")


def stats(target: Target, repository: str, objects: int = OBJECTS) -> list[bytes]:
    return [
        target.request("GET", f"{API}/repositories/{repository}/refs/main/objects/stat?path={quote(path, safe='')}")
        for path in map(path_of, _mixed(objects))
    ]


def pages(target: Target, repository: str, objects: int = OBJECTS) -> list[bytes]:
    """Listings of full pages, each behind another object."""
    return [
        target.request(
            "GET",
            f"{API}/repositories/{repository}/refs/main/objects/ls?"
            + urlencode({"amount": PAGE, "after": path_of(number)}),
        )
        for number in _mixed(objects - PAGE)
    ]


def uploads(target: Target, repository: str, count: int = 2000) -> list[bytes]:
    """Small objects, their bytes too."""
    return [upload_of(target, repository, f"staged/{number:06d}") for number in _mixed(count)]


def deletes(target: Target, repository: str, count: int = 2000) -> list[bytes]:
    """Staged changes without bytes: that something is deleted."""
    return [
        target.request("DELETE", f"{API}/repositories/{repository}/branches/main/objects?path=deleted%2F{number:06d}")
        for number in _mixed(count)
    ]


def links(target: Target, repository: str, source: str, size: int, count: int = 2000) -> list[bytes]:
    """Staged changes that name bytes which are there already, at the URL `source`."""
    body = {"physical_address": source, "checksum": "d41d8cd98f00b204e9800998ecf8427e", "size_bytes": size}
    sent = json.dumps(body).encode()
    where = f"{API}/repositories/{repository}/branches/main/objects?path=linked%2F"
    return [target.request("PUT", f"{where}{number:06d}", sent) for number in _mixed(count)]


def _mixed(count: int) -> Iterator[int]:
    """The numbers below `count` in an order that is always the same and goes to and fro."""
    step = next(prime for prime in (7919, 7907, 7901) if count % prime)
    return (number * step % count for number in range(count))


def _times(taken: Sequence[float]) -> str:
    if len(taken) < 2:
        return "-"
    parts = quantiles(taken, n=100)
    return f"p50 {parts[49] * 1000:.1f} ms, p99 {parts[98] * 1000:.1f} ms"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench._load", description=__doc__)
    parser.add_argument("--endpoint", required=True, help="such as http://127.0.0.1:8000")
    parser.add_argument("--access-key-id", required=True)
    parser.add_argument("--secret-access-key", required=True)
    parser.add_argument("--repository", default="bench-load", help="made and filled if it is not there")
    parser.add_argument("--storage-namespace", help="for that; by default local://REPOSITORY")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--processes", type=int, default=1, help="that the clients are spread over")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("what", nargs="*", help="stats, pages, uploads or deletes; by default each in turn")
    options = parser.parse_args(arguments)
    target = target_of(options.endpoint, (options.access_key_id, options.secret_access_key))
    kinds = {"stats": stats, "pages": pages, "uploads": uploads, "deletes": deletes}
    prepare(target, options.repository, options.storage_namespace or f"local://{options.repository}")
    for what in options.what or kinds:
        requests = kinds[what](target, options.repository)
        shape: dict[str, Any] = {"clients": options.clients, "processes": options.processes}
        print(f"{what:<10} {run(target, requests, seconds=options.seconds, **shape)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
