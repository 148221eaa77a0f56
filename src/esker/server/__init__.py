"""esker over HTTP: the REST API that lakeFS's clients speak, and what is esker's own in the same style."""

from importlib.metadata import version
from typing import Final

VERSION: Final = version("esker")
