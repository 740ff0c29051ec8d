"""What runs instances on this machine, by the settings."""

from __future__ import annotations

from cloudcore.compute.sandbox import SandboxDriver
from cloudcore.nodes.node import DriverUnusable
from registry.setting_texts import SettingsError
from registry.settings import Settings


def sandbox_of(settings: Settings) -> SandboxDriver | None:
    """Return the driver that the settings name, unchecked; None if this machine runs none."""
    chosen = settings.node
    folder = chosen.node(settings.data).folder / "instances"
    if chosen.compute_driver == "off":
        return None
    if chosen.compute_driver == "runc":
        from cloudcore.compute.runc import runc_driver  # noqa: PLC0415 - few installs use it

        return runc_driver(folder, chosen.compute_first_uid)
    from cloudcore.compute.bubblewrap import bubblewrap_driver  # noqa: PLC0415 - as above

    return bubblewrap_driver(folder)


def check_sandbox(settings: Settings) -> None:
    """Run a program as an instance, once, before any worker begins.

    Raises:
        SettingsError: this machine cannot run instances as the settings say.

    """
    driver = sandbox_of(settings)
    if driver is None:
        return
    try:
        driver.check()
    except DriverUnusable as error:
        raise SettingsError(f"compute_driver: {error}") from None
