"""`esker`: the command line. The same commands on a server and on a lake that is opened here.

Each command is a function over a `Session`, which has a client of the REST API: over HTTP, or straight into the
server's application in this process. So there is one code path, and what a command needs it imports when it runs.
"""

import sys
from io import TextIOWrapper

from esker.cli.exits import CODES, HERE, INTERRUPTED, code_of
from esker.errors import EskerError, InvalidError


def main() -> None:
    """The program. Ends the process."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _run() -> None:
    from esker.cli.commands import app
    from esker.cli.output import shown

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # terminals that know fewer letters than paths have
    try:
        app(prog_name="esker")
    except EskerError as error:
        sys.stderr.write(f"error: {shown(error.message)}\n")
        sys.exit(code_of(error))
    except UnicodeEncodeError as error:  # only of what was said on the command line, and not in UTF-8
        sys.stderr.write(f"error: '{shown(error.object)}' is not UTF-8, as all names and texts in a lake are\n")
        sys.exit(CODES[InvalidError])
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"error: {shown(where + (error.strerror or str(error)))}\n")
        sys.exit(HERE)
