"""Chores of the kernel itself: delete expired rows of shared tables, record lost machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cloudcore.db.rows import forget_all
from cloudcore.family import Runtime
from cloudcore.jobs import outbox, queue
from cloudcore.jobs.schedule import scheduled
from cloudcore.metering import sampling, usage
from cloudcore.nodes import rows as nodes
from cloudcore.nodes.rows import PLACINGS, Placing
from cloudcore.ports import Install, Opening
from cloudcore.web import idempotency, rate_limits

_MINUTE: Final = 60
_HOUR: Final = 3600


class KernelNeeds(NamedTuple):
    """The dependencies of the kernel's chores."""

    install: Install
    placings: Sequence[Placing]


async def _open_kernel(opening: Opening) -> KernelNeeds:
    return KernelNeeds(opening.install, await opening.get(PLACINGS))


async def _forget_windows(needs: KernelNeeds) -> None:
    await forget_all(needs.install.database, rate_limits.forget_ended, needs.install.clock())


async def _forget_undelivered(needs: KernelNeeds) -> None:
    await outbox.forget_undelivered(needs.install.database, needs.install.clock)


async def _look_at_nodes(needs: KernelNeeds) -> None:
    await nodes.look(needs.install.database, needs.install.clock, needs.placings)


KERNEL: Final[Runtime[KernelNeeds]] = Runtime(
    open=_open_kernel,
    schedule=scheduled(
        # Often, because unauthenticated clients can create many.
        ("kernel.rate_windows", _MINUTE, _forget_windows),
        ("kernel.undelivered_events", _HOUR, _forget_undelivered),
        ("kernel.nodes", nodes.LOOK_SECONDS, _look_at_nodes),
    ),
    expiry=(
        idempotency.forget_expired,
        queue.forget_finished,
        outbox.forget_delivered,
        usage.forget_hours,
        sampling.forget_samples,
    ),
)
