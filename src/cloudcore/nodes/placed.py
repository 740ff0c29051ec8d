"""Resources whose work is on a machine."""

from __future__ import annotations

from typing import Annotated, Final

from cloudcore.resources.record import Worked, own

NODE_LOST: Final = "NODE_LOST"
"""Code of the fault of what is on a machine that was not seen for a while."""


class Placed(Worked, kw_only=True, frozen=True):
    """Base of records whose work is done on one machine, and by no other."""

    node: Annotated[str, own(heading="NODE")]
    """Name of the machine."""
