"""DynamoDB: one table, a partition's name as the partition key and the key as a binary sort key.

- Strong: every read is a consistent read of the table itself.
- The SDK retries nothing: a write that was applied, its answer lost and then sent again would fail its own condition,
  and the winner would be told that it lost. We try again reads, and writes that DynamoDB turned away (throttling).
- Each write carries a fresh nonce as its version. When a condition fails, the record found is looked at: our own nonce
  there means that the write was applied.
- No answer to a write, or a server's error: its outcome is unknown. No connection, or a refusal: nothing changed.
- No guarded puts. Transactions could offer them at twice the write units, but cancel each other when two writers of a
  branch meet on its guard.
"""

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

from esker.errors import EskerError, InvalidError, Kind, OutcomeUnknownError, UnavailableError
from esker.stores.kv import KEY_BYTES_MAX, Anything, Guard, Guarded, Item, KVStore, Put, Record, Version, kind_of
from esker.world import REAL, World

try:
    import boto3.session
    from botocore import exceptions
    from botocore.config import Config
    from botocore.parsers import ResponseParserError
except ImportError as missing:
    raise InvalidError(Kind.MISSING_EXTRA, "DynamoDB needs more packages: pip install 'esker[aws]'") from missing

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

ATTEMPTS_MAX: Final = 10
PAUSE_MAX_S: Final = 5.0
TIMEOUT_S: Final = 20
CONNECTIONS_MAX: Final = 64
BATCH_MAX: Final = 25
"""DynamoDB's limit on the items of a BatchWriteItem."""

TABLE_TIMEOUT_S: Final = 120.0
"""How long a new table may take to become active."""

TURNED_AWAY: Final = frozenset(
    {"ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException"}
)
"""Refused for now, and certainly not applied."""

NEVER_SENT: Final = (
    exceptions.ConnectTimeoutError,
    exceptions.CredentialRetrievalError,
    exceptions.EndpointConnectionError,
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.ProxyConnectionError,
)

# Names of attributes are stored, and paid for, with every item.
_PARTITION: Final = "p"
_KEY: Final = "k"
_VERSION: Final = "n"
_VALUE: Final = "v"
_KEY_SCHEMA: Final = {_PARTITION: ("HASH", "S"), _KEY: ("RANGE", "B")}


class Units:
    """Capacity units consumed, by kind of partition. DynamoDB does not report those of a condition that failed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reads: defaultdict[str, float] = defaultdict(float)
        self.writes: defaultdict[str, float] = defaultdict(float)

    def add(self, partition: str, units: float, *, writes: bool) -> None:
        with self._lock:
            (self.writes if writes else self.reads)[kind_of(partition)] += units


class _ConditionFailedError(Exception):
    """DynamoDB looked and did not write."""

    def __init__(self, found: Any) -> None:
        super().__init__()
        self.version = found[_VERSION]["B"] if found else None


class DynamoDBKV(KVStore):
    """`dynamodb://table?region=eu-west-1&endpoint=http://127.0.0.1:8000`, both parameters optional: without them, and
    for credentials, the SDK looks where it always does. The table is made where it is missing. Threads may share an
    instance; each process opens its own.
    """

    guards: ClassVar[bool] = False

    def __init__(self, url: str, world: World = REAL) -> None:
        super().__init__()
        self._world = world
        self._table, region, endpoint = _parse(url)
        self.units = Units()
        config = Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=TIMEOUT_S,
            read_timeout=TIMEOUT_S,
            max_pool_connections=CONNECTIONS_MAX,
        )
        try:
            session = boto3.session.Session()
            self._client: DynamoDBClient = session.client(
                "dynamodb", region_name=region, endpoint_url=endpoint, config=config
            )
        except (exceptions.BotoCoreError, ValueError) as error:
            raise InvalidError(Kind.INVALID_URL, f"DynamoDB: {error}") from error
        self._create()

    def close(self) -> None:
        self._client.close()

    def _get(self, partition: str, key: bytes) -> Record | None:
        answer = self._read(
            partition,
            self._client.get_item,
            TableName=self._table,
            Key=_name(partition, key),
            ConsistentRead=True,
        )
        return _record(answer["Item"]) if "Item" in answer else None

    def _scan(self, partition: str, start: bytes, limit: int) -> list[Item]:
        query: dict[str, Any] = {"TableName": self._table, "ConsistentRead": True}
        query["KeyConditionExpression"] = f"{_PARTITION} = :p"
        query["ExpressionAttributeValues"] = {":p": {"S": partition}}
        if start:
            # DynamoDB refuses an empty key, and one over the limit: `items` passes the last key and a zero byte. Keys
            # have at most KEY_BYTES_MAX, so those from a longer start on are those after its beginning.
            query["KeyConditionExpression"] += f" AND {_KEY} {'>=' if len(start) <= KEY_BYTES_MAX else '>'} :k"
            query["ExpressionAttributeValues"][":k"] = {"B": start[:KEY_BYTES_MAX]}
        items: list[Item] = []
        while True:  # a page is at most 1 MB, and may be empty
            answer = self._read(partition, self._client.query, Limit=limit - len(items), **query)
            items += [Item(item[_KEY]["B"], _record(item)) for item in answer["Items"]]
            if len(items) >= limit or "LastEvaluatedKey" not in answer:
                return items
            query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def _put(self, partition: str, key: bytes, value: bytes) -> None:
        self._write(
            partition,
            self._client.put_item,
            TableName=self._table,
            Item=_item(partition, key, value, self._version()),
        )

    def _put_if(self, partition: str, key: bytes, value: bytes, expected: Version | None, also: Sequence[Put]) -> bool:
        version = self._version()
        try:
            self._write(
                partition,
                self._client.put_item,
                TableName=self._table,
                Item=_item(partition, key, value, version),
                **_condition(expected),
            )
        except _ConditionFailedError as failed:
            return bool(failed.version == version)
        return True

    def _put_guarded(
        self, partition: str, key: bytes, value: bytes, guard: Guard, expected: Version | None | Anything
    ) -> Guarded:
        raise AssertionError("without guards, the port does not come here")

    def _delete(self, partition: str, key: bytes) -> None:
        self._write(partition, self._client.delete_item, TableName=self._table, Key=_name(partition, key))

    def _delete_if(self, partition: str, key: bytes, expected: Version) -> bool:
        try:
            self._write(
                partition,
                self._client.delete_item,
                TableName=self._table,
                Key=_name(partition, key),
                **_condition(expected),
            )
        except _ConditionFailedError:
            return False
        return True

    def _put_many(self, partition: str, items: dict[bytes, bytes]) -> None:
        version = self._version()
        self._write_many(
            partition, [{"PutRequest": {"Item": _item(partition, key, items[key], version)}} for key in items]
        )

    def _delete_many(self, partition: str, keys: list[bytes]) -> None:
        self._write_many(partition, [{"DeleteRequest": {"Key": _name(partition, key)}} for key in keys])

    def _write_many(self, partition: str, requests: list[dict[str, Any]]) -> None:
        applied = False
        attempt = 0
        while requests:
            part, requests = requests[:BATCH_MAX], requests[BATCH_MAX:]
            try:
                answer = self._write(partition, self._client.batch_write_item, RequestItems={self._table: part})
            except UnavailableError as error:
                if not applied:
                    raise
                raise OutcomeUnknownError(message=f"a batch was cut short: {error.message}") from error
            left = answer.get("UnprocessedItems", {}).get(self._table, [])
            applied = applied or len(left) < len(part)
            attempt = attempt + 1 if left else 0
            if attempt == ATTEMPTS_MAX:
                raise OutcomeUnknownError(message="DynamoDB has left items of a batch unprocessed, time and again")
            if left:
                requests = left + requests
                self._pause(attempt)

    def _version(self) -> Version:
        return Version(bytes.fromhex(self._world.token(16)))

    def _read(self, partition: str, call: Callable[..., Any], **request: Any) -> dict[str, Any]:
        return self._run(partition, call, request, writes=False)

    def _write(self, partition: str, call: Callable[..., Any], **request: Any) -> dict[str, Any]:
        return self._run(partition, call, request, writes=True)

    def _run(
        self, partition: str, call: Callable[..., Any], request: dict[str, Any], *, writes: bool
    ) -> dict[str, Any]:
        self._check_process()
        for attempt in range(1, ATTEMPTS_MAX + 1):
            if attempt > 1:
                self._pause(attempt)
            try:
                answer: dict[str, Any] = call(ReturnConsumedCapacity="TOTAL", **request)
                self.units.add(partition, _units(answer), writes=writes)
                return answer
            except exceptions.ClientError as error:
                failed: Exception = error
                code = error.response["Error"].get("Code", "")
                if code == "ConditionalCheckFailedException":
                    raise _ConditionFailedError(error.response.get("Item")) from error
                answered = error.response["ResponseMetadata"].get("HTTPStatusCode", 500) < 500
                if answered and code not in TURNED_AWAY:
                    break
                unknown = not answered
            except NEVER_SENT as error:
                failed = error
                unknown = False
                break
            except (exceptions.BotoCoreError, ResponseParserError, _CutShortError) as error:
                failed = error
                unknown = True
            if unknown and writes:
                raise OutcomeUnknownError(message=f"DynamoDB did not answer a write: {failed}") from failed
        raise _unavailable(failed) from failed

    def _pause(self, attempt: int) -> None:
        """Longer each time, and at random, so that those who were turned away together do not come back together."""
        self._world.sleep(min(PAUSE_MAX_S, 0.05 * 2**attempt) * self._world.chance())

    def _create(self) -> None:
        deadline = self._world.monotonic_s() + TABLE_TIMEOUT_S
        while True:
            try:
                table = self._client.describe_table(TableName=self._table)["Table"]
            except self._client.exceptions.ResourceNotFoundException:
                self._create_table()
                continue
            except (exceptions.ClientError, exceptions.BotoCoreError) as error:
                raise _unavailable(error) from error
            if table["TableStatus"] in ("ACTIVE", "UPDATING"):
                break
            if self._world.monotonic_s() > deadline:
                raise UnavailableError(
                    Kind.STORE_UNAVAILABLE, f"the table {self._table!r} is {table['TableStatus']}, not ACTIVE"
                )
            self._world.sleep(0.5)
        kinds = {attribute["AttributeName"]: attribute["AttributeType"] for attribute in table["AttributeDefinitions"]}
        found = {key["AttributeName"]: (key["KeyType"], kinds[key["AttributeName"]]) for key in table["KeySchema"]}
        if found != _KEY_SCHEMA:
            raise InvalidError(
                Kind.INVALID_URL, f"the table {self._table!r} is another program's: its keys are {found}"
            )

    def _create_table(self) -> None:
        try:
            self._client.create_table(
                TableName=self._table,
                BillingMode="PAY_PER_REQUEST",
                KeySchema=[
                    {"AttributeName": _PARTITION, "KeyType": "HASH"},
                    {"AttributeName": _KEY, "KeyType": "RANGE"},
                ],
                AttributeDefinitions=[
                    {"AttributeName": _PARTITION, "AttributeType": "S"},
                    {"AttributeName": _KEY, "AttributeType": "B"},
                ],
            )
        except self._client.exceptions.ResourceInUseException:
            pass  # another process was first
        except (exceptions.ClientError, exceptions.BotoCoreError) as error:
            raise _unavailable(error) from error


class _CutShortError(Exception):
    """An answer without its last part: the SDK takes an empty body for an answer without fields, that is, for "there
    is no such item"."""


def _units(answer: dict[str, Any]) -> float:
    """What the call consumed: asked for always, so an answer without it is not whole."""
    consumed = answer.get("ConsumedCapacity")
    if not consumed:
        raise _CutShortError("the answer was cut short")
    parts: Iterable[dict[str, Any]] = consumed if isinstance(consumed, list) else [consumed]
    return float(sum(part["CapacityUnits"] for part in parts))


def _name(partition: str, key: bytes) -> dict[str, Any]:
    return {_PARTITION: {"S": partition}, _KEY: {"B": key}}


def _item(partition: str, key: bytes, value: bytes, version: Version) -> dict[str, Any]:
    return {**_name(partition, key), _VALUE: {"B": value}, _VERSION: {"B": version}}


def _record(item: dict[str, Any]) -> Record:
    return Record(item[_VALUE]["B"], Version(item[_VERSION]["B"]))


def _condition(expected: Version | None) -> dict[str, Any]:
    condition: dict[str, Any] = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    if expected is None:
        return condition | {"ConditionExpression": f"attribute_not_exists({_KEY})"}
    return condition | {
        "ConditionExpression": f"{_VERSION} = :expected",
        "ExpressionAttributeValues": {":expected": {"B": expected}},
    }


def _parse(url: str) -> tuple[str, str | None, str | None]:
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    unknown = set(query) - {"region", "endpoint"}
    if (
        parts.scheme != "dynamodb"
        or parts.path.strip("/")
        or unknown
        or any(len(given) > 1 for given in query.values())
    ):
        raise InvalidError(Kind.INVALID_URL, f"a DynamoDB URL is dynamodb://table?region=..&endpoint=.., not {url!r}")
    if not re.fullmatch(r"[A-Za-z0-9_.-]{3,255}", parts.netloc):
        raise InvalidError(
            Kind.INVALID_URL, f"a DynamoDB table's name is 3 to 255 of A-Z a-z 0-9 _ . -, not {parts.netloc!r}"
        )
    return parts.netloc, query.get("region", [None])[0], query.get("endpoint", [None])[0]


def _unavailable(error: Exception) -> EskerError:
    return UnavailableError(Kind.STORE_UNAVAILABLE, f"DynamoDB: {error}")
