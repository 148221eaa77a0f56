"""Whether a caller is still there, for bodies that tell no length.

A body in chunks ends with an empty one. Granian reports the end of a WSGI request's body in the same way whether that
came or the connection broke, so an upload that broke off would look like a shorter object. But whoever sends all of a
body waits for the answer, and whoever broke off is gone: the kernel knows. Which connection a request came by it is not
told, only from which address, so all from there are looked at; one that is merely idle is closed within moments.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from esker.world import World

_FDS: Final = "/proc/self/fd"
_MOMENT_S: Final = 0.02


def has_hung_up(address: str, world: World) -> bool:
    """Whether a connection of this process that came from `address` was ended by the other side, and still is open
    here: its request is being worked on."""
    ended = set(_ended(address))
    if not ended:
        return False
    world.sleep(_MOMENT_S)
    return not ended.isdisjoint(_ended(address))


def _ended(address: str) -> Iterator[tuple[str, int]]:
    """Host and port of those at the other side that will send no more."""
    for entry in os.listdir(_FDS):
        with suppress(OSError):  # closed since, or no socket
            if os.readlink(f"{_FDS}/{entry}").startswith("socket:"):
                fd = os.dup(int(entry))
                try:
                    connection = socket.socket(fileno=fd)
                except OSError:
                    os.close(fd)
                    raise
                with connection:
                    if connection.family not in (socket.AF_INET, socket.AF_INET6):
                        continue
                    host, port = connection.getpeername()[:2]
                    if host.removeprefix("::ffff:") == address and _is_at_end(connection):
                        yield host, port


def _is_at_end(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:  # reset
        return True
