"""What notifications depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cloudcore.room_checks import RoomChecks

if TYPE_CHECKING:
    from cloudcore.clock import Clock
    from cloudcore.db.base import Database
    from cloudcore.keyring import Keyring
    from cloudcore.notifications.ports import Mail, Queues
    from cloudcore.outbound.http_client import HttpClient

SEND_MESSAGE: Final = "queue:SendMessage"
"""The action on a queue that a subscription of it needs, and one with it for dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationNeeds:
    """The dependencies of the routes and the jobs of notifications."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    keyring: Keyring
    region: str
    url: str
    """Base URL in the links that recipients get."""
    client: HttpClient
    """Asks webhooks."""
    queues: Queues
    mail: Mail | None = None
    """Sends mail, or None if the install sends none; nobody can subscribe by it then."""
    room: RoomChecks = field(default_factory=RoomChecks)
    """Which accounts were found to have room for messages that wait."""
