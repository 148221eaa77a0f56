"""Where the secret key of a lake comes from: a setting, or a file that the first start makes.

The file is as good as every user's secret, so only its owner may read it.
"""

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from esker.auth.sealing import SECRET_KEY_BYTES_MIN
from esker.errors import InvalidError, Kind
from esker.settings import ServerSettings
from esker.world import REAL, World

KEY_FILE: Final = "esker.key"
"""Of a local lake, beside its database. A copy of both is as good as the lake; of the database alone, no secret is."""

_MODE: Final = 0o600
_MADE_BYTES: Final = 32


def secret_key_of(settings: ServerSettings, directory: Path | None) -> bytes:
    """The lake's secret key; `directory` is where the lake lies, if that is one. InvalidError, with the way out, if
    there is none to be had."""
    if settings.secret_key:
        return from_text(settings.secret_key)
    if settings.secret_key_file:
        return from_file(Path(settings.secret_key_file), REAL)
    if directory is not None:
        return from_file(directory / KEY_FILE, REAL)
    raise InvalidError(
        Kind.SECRET_KEY,
        f"{settings.lake} has no place for its secret key: set ESKER_SECRET_KEY, to the same on all servers of this "
        "lake (`openssl rand -hex 32` makes one)",
    )


def from_text(text: str) -> bytes:
    """The key that somebody set."""
    key = text.strip().encode()
    if len(key) < SECRET_KEY_BYTES_MIN:
        raise InvalidError(
            Kind.SECRET_KEY,
            f"the secret key is too short: at least {SECRET_KEY_BYTES_MIN} characters, such as `openssl rand -hex 32` "
            "prints",
        )
    return key


def from_file(path: Path, world: World) -> bytes:
    """The key in a file; a fresh one, if there is no file. Of several who come first, all get the same."""
    if not path.exists():
        _make(path, world.token(_MADE_BYTES), path.with_name(f"{path.name}.{world.token(8)}"))
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the secret key in {path}: {error}; mend that, or set ESKER_SECRET_KEY"
        raise InvalidError(Kind.SECRET_KEY, message) from None
    if mode & 0o077:
        raise InvalidError(Kind.SECRET_KEY, f"others may read the secret key in {path}: `chmod 600 {path}`")
    return from_text(text)


def _make(path: Path, text: str, draft: Path) -> None:
    """Whole or not at all, and never over another's."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink()
    except OSError as error:
        message = f"cannot make a secret key in {path}: {error}; mend that, or set ESKER_SECRET_KEY"
        raise InvalidError(Kind.SECRET_KEY, message) from None
