"""Settings of the mail that comes back: a domain, and where it is taken."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from registry.cli.server.serve import check_listeners
from registry.settings.email import EmailSettings
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

DOMAIN = "bounces.example.com"


def made(**values: str) -> Settings:
    return Settings(Path("data"), email=EmailSettings(**values))  # type: ignore[arg-type]


def test_a_domain_and_an_address_are_taken() -> None:
    settings = made(bounce_domain=DOMAIN, bounce_listen="[::]:25")
    assert settings.email.bounce_address == ("::", 25)
    assert made(bounce_domain=DOMAIN).email.bounce_address is None


def test_an_address_that_another_server_has_is_told_of_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(SettingsError, match=r"bounce_listen: nothing can .*in use"):
            check_listeners(made(bounce_domain=DOMAIN, bounce_listen=listen))
    check_listeners(made(bounce_domain=DOMAIN, bounce_listen=listen))
