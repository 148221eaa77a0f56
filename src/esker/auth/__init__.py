"""Who calls, how they prove it, and what they may do. See `auth.directory`."""

from esker.auth.directory import Directory
from esker.auth.identity import OWNER, Grant, Identity, Need, Role, role_for
from esker.errors import UnauthenticatedError

__all__ = ["OWNER", "Directory", "Grant", "Identity", "Need", "Role", "UnauthenticatedError", "role_for"]
