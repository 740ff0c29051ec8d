"""Ports: what parts of the platform ask of each other, and how one process fills them.

A family names each port that it asks for, with a type that is often a Protocol, and gets what fills
it when it makes its needs. It offers ports too. The composition root offers what the settings say,
and fills the ports of one family from those of another, so that no family knows another. What is
made first follows from who asks for what.
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


class Asked(Generic[T_co]):
    """A port as those see it who ask: what fills it has this type, or one below it."""

    def __init__(self, name: str) -> None:
        """Name it ``<family>.<what>``, as no other port is named."""
        self.name = name


class Port(Asked[T]):
    """A port as those see it who fill it: with this type, and no wider one."""


KEYRING: Final[Port[Keyring]] = Port("platform.keyring")
"""The root key of the install."""


class Offer(NamedTuple):
    """What fills a port."""

    port: Port[Any]
    make: Callable[[Opening], Awaitable[object]]


def offer(port: Port[T], make: Callable[[Opening], Awaitable[T]]) -> Offer:
    """Offer what `make` returns, which is called once in a process, if anything asks for it."""
    return Offer(port, make)


def known(port: Port[T], value: T) -> Offer:
    """Offer a value that exists already."""

    async def make(_opening: Opening) -> T:
        return value

    return Offer(port, make)


class Install(NamedTuple):
    """What every family has, in every edition."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    region: str
    url: str
    """Base URL at which clients reach it."""
    own_urls: Mapping[str, str]
    """Base URLs of families that have hosts of their own, by `Family.host`."""

    def url_of(self, host: str) -> str:
        """Return the base URL of a family, by its `host`."""
        return self.own_urls.get(host, self.url)


class Opens(Protocol[T_co]):
    """What makes needs of its own: a family."""

    @property
    def name(self) -> str:
        """Return its name."""
        ...

    @property
    def open(self) -> Callable[[Opening], Awaitable[T_co]]:
        """Return what makes its needs."""
        ...


class PortMissing(Exception):
    """A port was asked for that nothing fills; the process does not start."""


class Opening:
    """The start of one process: makes each thing that families need once, when it is asked for."""

    def __init__(
        self, install: Install, resources: AsyncExitStack, offers: Iterable[Offer]
    ) -> None:
        """Fill ports from `offers`; of two for one port, the later counts.

        Makers enter in `resources` what must be closed; it is closed before what it was made of.
        """
        self.install = install
        self.resources = resources
        self._offers: dict[Asked[Any], Callable[[Opening], Awaitable[Any]]] = {
            each.port: each.make for each in offers
        }
        self._made: dict[object, Any] = {}
        self._asking: list[str] = []

    async def get(self, port: Asked[T]) -> T:
        """Return what fills a port.

        Raises:
            PortMissing: nothing does, or it asks for itself.

        """
        make = self._offers.get(port)
        if make is None or port.name in self._asking:
            family, *ports = self._asking or ["the process"]
            via = "".join(f" {name} asks for it." for name in ports[-1:])
            why = "which nothing offers" if make is None else "which asks for itself"
            raise PortMissing(f"{family} needs the port {port.name}, {why}.{via}")
        return await self._once(port, port.name, make)

    async def needs_of(self, family: Opens[T]) -> T:
        """Return the needs of a family.

        Raises:
            PortMissing: it asks for a port that nothing offers.

        """
        return await self._once(family.name, f"the family {family.name}", family.open)

    async def _once(self, key: object, name: str, make: Callable[[Opening], Awaitable[T]]) -> T:
        if key not in self._made:
            self._asking.append(name)
            self._made[key] = await make(self)
            self._asking.pop()
        made: T = self._made[key]
        return made
