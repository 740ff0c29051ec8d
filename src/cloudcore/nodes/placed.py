"""The base of records whose work is done on one machine."""

from __future__ import annotations

from typing import Annotated

from cloudcore.resources.resource import Worked, own


class Placed(Worked, kw_only=True, frozen=True):
    """Base of records whose work is done on one machine, and on no other."""

    node: Annotated[str, own(heading="NODE")]
    """Name of the machine."""
