"""`python -m esker.server`: serve the lake that the environment names (`ESKER_LAKE`, `ESKER_KV`, `ESKER_PORT`, ...).

`--forget-users` drops all users and keys instead, for when the secret key is lost: the next start makes new ones.
"""

import sys

from esker.auth.directory import forget_users
from esker.engine.opening import database_of
from esker.errors import EskerError
from esker.server.serve import serve
from esker.settings import server_settings
from esker.stores.open_kv import open_kv


def main(arguments: list[str]) -> int:
    try:
        settings = server_settings()
        match arguments:
            case []:
                serve(settings)
            case ["--forget-users"]:
                kv = open_kv(settings.kv or database_of(settings.lake))
                forget_users(kv)
                kv.close()
            case _:
                sys.stderr.write(__doc__ or "")
                return 2
    except EskerError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
