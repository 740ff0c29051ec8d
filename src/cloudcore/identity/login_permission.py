"""What another family says a role must be allowed, to log container clients in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class LoginPermission(NamedTuple):
    """What a role must be allowed, to log container clients in."""

    action: str
    resource: str
    """CRN, of the role's account."""


PermissionToLogIn = Callable[[str], LoginPermission]
"""Returns it for an account."""
