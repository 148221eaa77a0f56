"""The DynamoDB store: the port's promises on moto's server, and what it makes of answers that are lost or refuse."""

import http.client
import json
import os
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest

from esker.errors import InvalidError, OutcomeUnknownError, UnavailableError
from esker.stores.kv import KEY_BYTES_MAX, VALUE_BYTES_MAX
from esker.stores.kv_dynamodb import DynamoDBKV
from esker.testing.kv_suite import Connect, UnguardedKVSuite, fresh_partition, in_forked_child, together, value, version
from esker.world import RealWorld

STRONGER = list(filter(None, [os.environ.get("ESKER_TEST_DYNAMODB_URL")]))
"""Such as http://127.0.0.1:8000, where Amazon's DynamoDB Local listens."""


@pytest.fixture
def endpoint(moto_url: str) -> str:
    return moto_url


@pytest.mark.parametrize("endpoint", ["moto", *STRONGER], indirect=True)
class TestDynamoDBKV(UnguardedKVSuite):
    examples = 20

    @pytest.fixture
    def endpoint(self, request: pytest.FixtureRequest, moto_url: str) -> str:
        return moto_url if request.param == "moto" else str(request.param)

    @pytest.fixture
    def connect(self, endpoint: str) -> Connect:
        return lambda: DynamoDBKV(f"dynamodb://esker?region=us-east-1&endpoint={endpoint}")


class Relay(ThreadingHTTPServer):
    """Passes requests on to a server, but misbehaves as told: one word of `plan` for each request."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Relayed)
        self.target = urlsplit(target).netloc
        self.plan: list[str] = []
        self.seen: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Relayed(BaseHTTPRequestHandler):
    server: Relay
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(self.headers["X-Amz-Target"].partition(".")[2])
        match self.server.plan.pop(0) if self.server.plan else "pass":
            case "pass":
                self._answer(*self._forward(body))
            case "lose":  # applied, and nobody is told
                self._forward(body)
                self.close_connection = True
            case "twice":  # applied, lost, and sent again by something between us
                self._forward(body)
                self._answer(*self._forward(body))
            case "empty":
                self._answer(200, b"")
            case "partly":  # a batch of which only the first item is done
                request = json.loads(body)
                [(table, items)] = request["RequestItems"].items()
                done = json.dumps(request | {"RequestItems": {table: items[:1]}}).encode()
                status, answer = self._forward(done)
                left = {"UnprocessedItems": {table: items[1:]}} if items[1:] else {}
                self._answer(status, json.dumps(json.loads(answer) | left).encode())
            case error:
                number, _, code = error.partition(" ")
                self._answer(int(number), json.dumps({"__type": f"com.amazonaws.dynamodb#{code}"}).encode())

    def _forward(self, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.server.target)
        headers = {
            name: given for name, given in self.headers.items() if name not in ("Host", "Content-Length", "Connection")
        }
        connection.request("POST", self.path, body, headers)
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class Restless(RealWorld):
    """Does not sleep, but notes for how long it would have."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def relay(moto_url: str) -> Iterator[Relay]:
    server = Relay(moto_url)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def world() -> Restless:
    return Restless()


@pytest.fixture
def kv(relay: Relay, world: Restless) -> Iterator[DynamoDBKV]:
    store = DynamoDBKV(f"dynamodb://esker?region=us-east-1&endpoint={relay.url}", world)
    relay.seen.clear()
    yield store
    store.close()


@pytest.fixture
def partition() -> str:
    return fresh_partition()


@pytest.mark.parametrize("how", ["lose", "empty", "500 InternalServerError", "503 ServiceUnavailable"])
def test_a_write_without_an_answer_is_unknown_and_is_not_sent_again(
    kv: DynamoDBKV, relay: Relay, partition: str, how: str
) -> None:
    kv.put(partition, b"there", b"v")
    current = version(kv, partition, b"there")
    relay.seen.clear()
    calls: list[Callable[[], object]] = [
        lambda: kv.put(partition, b"a", b"v"),
        lambda: kv.put_if(partition, b"b", b"v", None),
        lambda: kv.put_if(partition, b"there", b"w", current),
        lambda: kv.delete_if(partition, b"there", version(kv, partition, b"there")),
        lambda: kv.delete(partition, b"a"),
        lambda: kv.put_many(partition, [(b"c", b"v")]),
        lambda: kv.delete_many(partition, [b"c"]),
    ]
    for call in calls:
        relay.plan = [how] if call is not calls[3] else ["pass", how]
        with pytest.raises(OutcomeUnknownError):
            call()
    assert len(relay.seen) == len(calls) + 1


def test_a_write_that_was_applied_and_sent_again_by_the_network_is_won(
    kv: DynamoDBKV, relay: Relay, partition: str
) -> None:
    relay.plan = ["twice"]
    assert kv.put_if(partition, b"k", b"1", None)
    current = version(kv, partition, b"k")
    relay.plan = ["twice"]
    assert kv.put_if(partition, b"k", b"2", current)
    relay.plan = ["twice"]
    assert not kv.put_if(partition, b"k", b"3", current)
    assert value(kv, partition, b"k") == b"2"


def test_reads_are_sent_again(kv: DynamoDBKV, relay: Relay, partition: str) -> None:
    kv.put(partition, b"k", b"v")
    relay.plan = ["lose", "empty", "500 InternalServerError", "400 ThrottlingException"]
    assert value(kv, partition, b"k") == b"v"
    relay.plan = ["empty"]
    assert [item.record.value for item in kv.scan(partition)] == [b"v"], "an empty answer is none"


def test_a_write_that_was_turned_away_is_sent_again_after_a_pause(
    kv: DynamoDBKV, relay: Relay, world: Restless, partition: str
) -> None:
    relay.plan = ["400 ProvisionedThroughputExceededException", "400 ThrottlingException"]
    assert kv.put_if(partition, b"k", b"v", None)
    assert relay.seen == ["PutItem"] * 3
    assert len(world.slept) == 2
    relay.plan = ["400 ThrottlingException"] * 100
    with pytest.raises(UnavailableError):
        kv.put(partition, b"k", b"w")
    relay.plan.clear()
    assert value(kv, partition, b"k") == b"v"


def test_a_refusal_changed_nothing_and_is_told_at_once(kv: DynamoDBKV, relay: Relay, partition: str) -> None:
    relay.plan = ["400 AccessDeniedException"]
    with pytest.raises(UnavailableError, match="AccessDenied"):
        kv.put(partition, b"k", b"v")
    assert relay.seen == ["PutItem"]


def test_what_a_batch_left_unprocessed_is_sent_again(kv: DynamoDBKV, relay: Relay, partition: str) -> None:
    keys = [b"%02d" % number for number in range(30)]
    relay.plan = ["partly", "pass", "partly"]
    kv.put_many(partition, [(key, b"v") for key in keys])
    assert [item.key for item in kv.scan(partition)] == keys
    relay.plan = ["partly"]
    kv.delete_many(partition, keys[1:])
    assert [item.key for item in kv.scan(partition)] == keys[:1]


def test_a_batch_cut_short_is_unknown_but_one_not_begun_changed_nothing(
    kv: DynamoDBKV, relay: Relay, partition: str
) -> None:
    batch = [(b"%02d" % number, b"v") for number in range(30)]
    relay.plan = ["400 AccessDeniedException"]
    with pytest.raises(UnavailableError):
        kv.put_many(partition, batch)
    relay.plan = ["pass", "400 AccessDeniedException"]
    with pytest.raises(OutcomeUnknownError):
        kv.put_many(partition, batch)


def test_every_read_is_consistent_and_a_scan_reads_on_over_pages(moto_url: str, partition: str) -> None:
    kv = DynamoDBKV(f"dynamodb://esker?region=us-east-1&endpoint={moto_url}")
    requests: list[dict[str, Any]] = []
    kv._client.meta.events.register(
        "before-parameter-build.dynamodb.*", lambda params, **_: requests.append(dict(params))
    )
    kv.put_many(partition, [(b"%d" % number, b"x" * VALUE_BYTES_MAX) for number in range(6)])
    requests.clear()
    assert len(kv.scan(partition)) == 6
    assert len(requests) > 1, "1 MB a page"
    kv.get(partition, b"0")
    assert all(request["ConsistentRead"] for request in requests)
    kv.scan(partition, b"k" * KEY_BYTES_MAX + b"\0")
    bounds = requests[-1]["ExpressionAttributeValues"]
    assert len(bounds[":k"]["B"]) == KEY_BYTES_MAX, "DynamoDB refuses longer ones; moto does not"
    kv.close()


def test_units_are_counted_by_kind_of_partition(kv: DynamoDBKV) -> None:
    kv.put("written/1", b"k", b"v")
    kv.put_many("written/2", [(b"k", b"v"), (b"l", b"v")])
    kv.get("read/1", b"k")
    kv.scan("read/2")
    assert set(kv.units.writes) == {"written"}
    assert set(kv.units.reads) == {"read"}
    assert kv.units.writes["written"] > 0
    assert kv.units.reads["read"] > 0


def test_a_table_is_made_once_by_several(moto_url: str) -> None:
    url = f"dynamodb://made.once?region=us-east-1&endpoint={moto_url}"
    together([lambda: DynamoDBKV(url).close()] * 4)


def test_another_programs_table_is_refused(moto_url: str) -> None:
    client = boto3.client("dynamodb", region_name="us-east-1", endpoint_url=moto_url)
    client.create_table(
        TableName="theirs",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "p", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "p", "AttributeType": "S"}],
    )
    with pytest.raises(InvalidError):
        DynamoDBKV(f"dynamodb://theirs?region=us-east-1&endpoint={moto_url}")
    client.close()


def test_without_a_server_the_store_is_unavailable(kv: DynamoDBKV, relay: Relay, partition: str) -> None:
    relay.shutdown()
    relay.server_close()
    kv._client.close()  # and with it the connection that is open
    with pytest.raises(UnavailableError):
        kv.put(partition, b"k", b"v")
    with pytest.raises(UnavailableError):
        DynamoDBKV(f"dynamodb://esker?region=us-east-1&endpoint={relay.url}")


@pytest.mark.parametrize(
    "url", ["dynamodb://", "dynamodb://t", "dynamodb://table/more", "dynamodb://table?zone=1", "dynamodb://a:b@table"]
)
def test_an_url_that_names_no_table_is_refused(url: str) -> None:
    with pytest.raises(InvalidError):
        DynamoDBKV(url)


def test_an_instance_is_refused_in_a_forked_child(kv: DynamoDBKV, partition: str) -> None:
    assert in_forked_child(lambda: kv.get(partition, b"k")) == InvalidError.__name__
    assert in_forked_child(lambda: kv.put(partition, b"k", b"v")) == InvalidError.__name__
