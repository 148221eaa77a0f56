"""What clients ask before anything else: the version of the interface, and what the store can do."""

import re
from importlib.util import find_spec
from typing import Final

from esker.auth import Need
from esker.engine import garbage
from esker.server import VERSION, places, wire
from esker.server.call import Call, NoQuery, Operation, Server

INTERFACE: Final = "1.84.0"
"""Of lakeFS, whose interface this is: clients parse it and decide by it what they may ask."""


def get_config(call: Call[NoQuery, None]) -> wire.Config:
    """Versions, and what the store of this server can do."""
    return wire.Config(
        version_config=_version(),
        storage_config=_storage(call.server),
        storage_config_list=[],
        ui_config=wire.UIConfig(custom_viewers=[]),
        capabilities_config=wire.CapabilitiesConfig(async_ops=False),
    )


def get_version(call: Call[NoQuery, None]) -> wire.VersionConfig:
    """Versions."""
    return _version()


def get_storage_config(call: Call[NoQuery, None]) -> wire.StorageConfig:
    """What the store of this server can do."""
    return _storage(call.server)


def get_gc_config(call: Call[NoQuery, None]) -> wire.GarbageCollectionConfig:
    """How long, in seconds, what nothing names any more is kept at least."""
    return wire.GarbageCollectionConfig(grace_period=int(garbage.GRACE_S))


def post_statistics(call: Call[NoQuery, wire.StatsEventsList]) -> None:
    """Accept what clients count of themselves, and forget it."""


def _version() -> wire.VersionConfig:
    return wire.VersionConfig(version=INTERFACE, version_context=f"esker {VERSION}", upgrade_recommended=False)


def _storage(server: Server) -> wire.StorageConfig:
    root = places.place(server.storage)
    kind = places.TYPES[root.scheme]
    own = kind in places.OWN
    scheme = kind if own else root.scheme
    return wire.StorageConfig(
        blockstore_type=kind,
        blockstore_namespace_example=f"{scheme}://example-bucket/",
        blockstore_namespace_validity_regex=f"^{re.escape(scheme)}://.+$",
        default_namespace_prefix=f"{kind}://" if own else root.url,
        pre_sign_support=True,
        pre_sign_support_ui=False,
        pre_sign_multipart_upload=root.scheme == "s3" and find_spec("boto3") is not None,
        import_support=bool(server.sources),
        import_validity_regex=f"^({'|'.join(re.escape(source.url) for source in server.sources)})",
    )


OPERATIONS = [
    Operation(id="getConfig", method="GET", path="/config", need=Need.READ, handler=get_config),
    Operation(id="getLakeFSVersion", method="GET", path="/config/version", need=Need.READ, handler=get_version),
    Operation(
        id="getStorageConfig",
        method="GET",
        path="/config/storage",
        need=Need.READ,
        handler=get_storage_config,
    ),
    Operation(
        id="getGarbageCollectionConfig",
        method="GET",
        path="/config/garbage-collection",
        need=Need.READ,
        handler=get_gc_config,
    ),
    Operation(
        id="postStatsEvents",
        method="POST",
        path="/statistics",
        need=Need.READ,
        handler=post_statistics,
        status=204,
    ),
]
