"""The family of the kernel: tables and timers shared by all families, without routes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from cloudcore.family import Family

if TYPE_CHECKING:
    from cloudcore.db.deletion import Forget
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.nodes.rows import Placing
    from cloudcore.ports import Install, Opening

_MINUTE: Final = 60
_HOUR: Final = 3600


class KernelNeeds(NamedTuple):
    """What the chores of the kernel depend on."""

    install: Install
    placings: Sequence[Placing]


async def _open_kernel(opening: Opening) -> KernelNeeds:
    from cloudcore.nodes.rows import PLACINGS  # noqa: PLC0415 - SQLAlchemy

    return KernelNeeds(opening.install, await opening.get(PLACINGS))


def _schedule_kernel(needs: KernelNeeds) -> Sequence[Scheduled]:
    from cloudcore.db.deletion import forget_all  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs import outbox  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415
    from cloudcore.nodes import rows as nodes  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.web import ratelimit  # noqa: PLC0415 - SQLAlchemy

    database, clock = needs.install.database, needs.install.clock

    async def forget_windows() -> None:
        await forget_all(database, ratelimit.forget_ended, clock())

    forget_events = partial(outbox.forget_undelivered, database, clock)
    look = partial(nodes.look, database, clock, needs.placings)
    return (
        # Often, because unauthenticated clients can create many.
        Scheduled("kernel.rate_windows", _MINUTE, forget_windows),
        Scheduled("kernel.undelivered_events", _HOUR, forget_events),
        Scheduled("kernel.nodes", nodes.LOOK_SECONDS, look),
    )


def _expiry() -> Sequence[Forget]:
    from cloudcore.jobs import outbox, queue  # noqa: PLC0415
    from cloudcore.metering import sampling, usage  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.web import idempotency  # noqa: PLC0415 - SQLAlchemy

    return (
        idempotency.forget_expired,
        queue.forget_finished,
        outbox.forget_delivered,
        usage.forget_hours,
        usage.forget_reports,
        sampling.forget_samples,
    )


KERNEL: Final[Family[KernelNeeds]] = Family(
    name="kernel", open=_open_kernel, schedule=_schedule_kernel, expiry=_expiry
)
