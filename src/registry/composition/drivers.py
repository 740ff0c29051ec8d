"""Choose the drivers of networks, load balancers, instances and databases by the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudcore.nodes.node import DriverUnusable
from registry.settings.texts import SettingsError

if TYPE_CHECKING:
    from cloudcore.compute.shim_instances import ShimInstances
    from cloudcore.databases.servers.bubblewrap import BubblewrapServers
    from cloudcore.loadbalancer.replicas import Replicas
    from cloudcore.network.driver import NetworkDriver
    from registry.settings.settings import Settings


def network_driver(settings: Settings) -> NetworkDriver:
    """Return the driver of networks."""
    folder = settings.node.node(settings.data).folder / "network"
    if settings.node.network_driver == "nftables":
        from cloudcore.network.drivers.nftables import Nftables  # noqa: PLC0415 - only one of the two is used

        return Nftables(folder)
    from cloudcore.network.drivers.render import Render  # noqa: PLC0415 - as above

    return Render(folder)


def balancer_driver(settings: Settings) -> Replicas:
    """Return the driver of load balancers."""
    folder = settings.node.node(settings.data).folder / "balancers"
    if settings.node.balancer_driver == "haproxy":
        from cloudcore.loadbalancer.haproxy import HaproxyDriver  # noqa: PLC0415 - as above

        return HaproxyDriver(folder)
    from cloudcore.loadbalancer.embedded import EmbeddedDriver  # noqa: PLC0415 - as above

    return EmbeddedDriver(folder)


def compute_driver(settings: Settings) -> ShimInstances | None:
    """Return the driver of instances, or None if this machine runs none."""
    chosen = settings.node
    if chosen.compute_driver == "off":
        return None
    folder = chosen.node(settings.data).folder / "instances"
    if chosen.compute_driver == "runc":
        from cloudcore.compute.runc import runc_driver  # noqa: PLC0415 - few installs use it

        return runc_driver(folder, chosen.compute_first_uid)
    from cloudcore.compute.bubblewrap import bubblewrap_driver  # noqa: PLC0415 - as above

    return bubblewrap_driver(folder)


def database_driver(settings: Settings) -> BubblewrapServers | None:
    """Return the driver of database servers, or None if this machine runs none."""
    chosen = settings.node
    if chosen.database_driver == "off":
        return None
    from cloudcore.databases.servers.bubblewrap import BubblewrapServers, Listening  # noqa: PLC0415 - few installs use it

    first_port, _ = chosen.database_range
    listening = Listening(chosen.database_address, first_port, chosen.database_first_uid)
    return BubblewrapServers(chosen.node(settings.data).folder / "databases", listening)


def check_drivers(settings: Settings) -> None:
    """Check that this machine can run the configured drivers.

    Raise `SettingsError` if a program or a right is missing; the message names it.
    """
    drivers = (
        network_driver(settings),
        balancer_driver(settings),
        compute_driver(settings),
        database_driver(settings),
    )
    try:
        for each in drivers:
            if each is not None:
                each.check()
    except DriverUnusable as error:
        raise SettingsError(str(error)) from None
