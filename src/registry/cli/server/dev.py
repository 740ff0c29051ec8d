"""``entrepot dev``: a registry on this machine, without sign-in."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from ipaddress import ip_address

from cloudcore.commands.records import write_now
from cloudcore.serving.processes.supervisor import limit_arenas
from registry.cli.server.run_server import check_disk, load_before_fork, serve_application
from registry.composition.dev import DEV, DEV_ACCOUNT, create_dev_app
from registry.composition.main import prepare
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError


def run_dev(settings: Settings) -> int:
    """Serve until a signal arrives; return the exit status.

    Raise `SettingsError` if the address could be reached from other machines, or the folder holds
    an install with accounts; `Unavailable` if the disk of the data is read-only.
    """
    limit_arenas()
    _require_loopback(settings.host)
    if settings.acme_folder is not None or settings.own_folder is not None:
        raise SettingsError(
            "tls and tls_acme are for 'entrepot serve'; name files of a certificate"
        )
    if settings.root_key.exists():
        raise SettingsError(
            f"{settings.data} holds an install with accounts, and 'entrepot dev' has no sign-in:"
            " run 'entrepot serve', or name another folder with --data"
        )
    settings = replace(settings, s3_port=0, s3_host="", family_hosts="")  # these need a sign-in
    prepare(settings)
    check_disk(settings)
    load_before_fork(settings, DEV)
    return serve_application(settings, create_dev_app, partial(_greet, settings))


def _require_loopback(host: str) -> None:
    """Raise `SettingsError` unless the address is a loopback one, since there is no sign-in."""
    try:
        is_loopback = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise SettingsError(
            f"'entrepot dev' has no sign-in, so it listens on loopback addresses only, not {host}; "
            "for others there is 'entrepot init' and 'entrepot serve'"
        )


def _greet(settings: Settings, url: str) -> None:
    registry = url.partition("://")[2]
    write_now(
        f"Entrepot is ready on {url} (data in {settings.data}, stop with Ctrl+C). Try:\n"
        f"  docker tag IMAGE {registry}/{DEV_ACCOUNT}/hello:1\n"
        f"  docker push {registry}/{DEV_ACCOUNT}/hello:1\n"
        f"  docker pull {registry}/{DEV_ACCOUNT}/hello:1\n"
        f"  podman push --tls-verify=false IMAGE {registry}/{DEV_ACCOUNT}/hello:1\n"
    )
