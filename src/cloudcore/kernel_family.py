"""The family of the kernel: tables and timers shared by all families, without routes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudcore.family import Family

if TYPE_CHECKING:
    from cloudcore.db.deletion import Forget
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.ports import Install, Opening

_MINUTE: Final = 60
_HOUR: Final = 3600


async def _open(opening: Opening) -> Install:
    return opening.install


def _schedule(needs: Install) -> Sequence[Scheduled]:
    from cloudcore.db.deletion import forget_all  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs import outbox  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415
    from cloudcore.web import ratelimit  # noqa: PLC0415 - SQLAlchemy

    async def forget_windows() -> None:
        await forget_all(needs.database, ratelimit.forget_ended, needs.clock())

    forget_events = partial(outbox.forget_undelivered, needs.database, needs.clock)
    return (
        # Often, because unauthenticated clients can create many.
        Scheduled("kernel.rate_windows", _MINUTE, forget_windows),
        Scheduled("kernel.undelivered_events", _HOUR, forget_events),
    )


def _expiry() -> Sequence[Forget]:
    from cloudcore.jobs import outbox, queue  # noqa: PLC0415
    from cloudcore.metering import reporting, sampling  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.web import idempotency  # noqa: PLC0415 - SQLAlchemy

    return (
        idempotency.forget_expired,
        queue.forget_finished,
        outbox.forget_delivered,
        reporting.forget_hours,
        reporting.forget_reports,
        sampling.forget_samples,
    )


KERNEL: Final[Family[Install]] = Family(
    name="kernel", open=_open, schedule=_schedule, expiry=_expiry
)
