"""Ports: dependencies between parts of the platform, and how a process provides them.

A family declares a port for each dependency on another part, often with a Protocol as its type, and
requests the implementation when its own dependencies are made. The composition root, and other
families, offer implementations. So families do not know each other, and the order of construction
follows from the requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from cloudcore.clock import Clock
    from cloudcore.db.base import Database
    from cloudcore.keyring import Keyring

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class PortType(Generic[T_co]):
    """A port as its users see it: its implementation is a `T_co`, or a subtype."""

    def __init__(self, name: str) -> None:
        """Name the port ``<family>.<what>``; names are unique."""
        self.name = name


class Port(PortType[T]):
    """A port as its implementers see it: they must provide exactly this type."""


KEYRING: Final[Port[Keyring]] = Port("platform.keyring")
"""The root key of the install."""


class Offer(NamedTuple):
    """A port with the function that makes its implementation."""

    port: Port[Any]
    make: Callable[[Opening], Awaitable[object]]


def offer(port: Port[T], make: Callable[[Opening], Awaitable[T]]) -> Offer:
    """Offer the result of `make`, which a process calls once, when the port is first requested."""
    return Offer(port, make)


def known(port: Port[T], value: T) -> Offer:
    """Offer an existing value as the implementation of a port."""

    async def make(_opening: Opening) -> T:
        return value

    return Offer(port, make)


class Install(NamedTuple):
    """The dependencies that every family can use, in every edition."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    region: str
    url: str
    """Base URL at which clients reach the install."""
    own_urls: Mapping[str, str]
    """Base URLs of families that have hosts of their own, by `Family.host`."""

    def url_of(self, host: str) -> str:
        """Return the base URL of the family with this `Family.host`."""
        return self.own_urls.get(host, self.url)


class NeedsOpener(Protocol[T_co]):
    """A part of the platform that makes its own dependencies; every family is one."""

    @property
    def name(self) -> str:
        """Return the part's name."""

    @property
    def open(self) -> Callable[[Opening], Awaitable[T_co]]:
        """Return the function that makes the part's dependencies."""


class PortMissing(Exception):
    """A port is requested but not offered; the process does not start."""


class Opening:
    """The start of a process; each dependency is made once, on the first request for it."""

    def __init__(
        self, install: Install, resources: AsyncExitStack, offers: Iterable[Offer]
    ) -> None:
        """Take implementations from `offers`; of several offers for a port, the last one counts.

        What must be closed is added to `resources`, which closes it before its own dependencies.
        """
        self.install = install
        self.resources = resources
        self._offers: dict[PortType[Any], Callable[[Opening], Awaitable[Any]]] = {
            each.port: each.make for each in offers
        }
        self._made: dict[object, Any] = {}
        self._asking: list[str] = []

    async def get(self, port: PortType[T]) -> T:
        """Return the implementation of a port.

        Raise `PortMissing` if the port is not offered, or its implementation depends on it.
        """
        make = self._offers.get(port)
        if make is None or port.name in self._asking:
            family, *ports = self._asking or ["the process"]
            via = "".join(f" {name} asks for it." for name in ports[-1:])
            why = "which nothing offers" if make is None else "which asks for itself"
            raise PortMissing(f"{family} needs the port {port.name}, {why}.{via}")
        return await self._once(port, port.name, make)

    async def needs_of(self, family: NeedsOpener[T]) -> T:
        """Return the dependencies of a family.

        Raise `PortMissing` if the family requests a port that is not offered.
        """
        return await self._once(family.name, f"the family {family.name}", family.open)

    async def _once(self, key: object, name: str, make: Callable[[Opening], Awaitable[T]]) -> T:
        if key not in self._made:
            self._asking.append(name)
            self._made[key] = await make(self)
            self._asking.pop()
        made: T = self._made[key]
        return made
