"""The URL of ``entrepot serve``, for the commands beside it, which do not have its options.

``serve`` leaves it in the data folder. There it stays when the server stops: the next one will most
likely have the same.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from registry.setting_texts import CONSOLE
from registry.settings import Settings

_FILE: Final = "served-url"
_MAX_CHARACTERS: Final = 500

_log = logging.getLogger(__name__)


def note_url(settings: Settings, url: str) -> None:
    """Leave the URL that clients reach the server at; a failure is logged, and serving goes on."""
    try:
        _path(settings).write_text(f"{url}\n")
    except OSError as error:
        _log.warning("cannot write the URL of the registry to %s: %s", _path(settings), error)


def find_url(settings: Settings) -> str:
    """Return the URL that the settings name; if they name none, that of the last server."""
    if names_url(settings):
        return settings.url
    try:
        noted = _path(settings).read_text()[:_MAX_CHARACTERS].strip()
    except (OSError, ValueError):
        return settings.url
    return noted if noted.startswith("http") and noted.isprintable() else settings.url


def find_console(settings: Settings) -> str:
    """Return the URL of the console."""
    return f"{settings.own_urls.get(CONSOLE) or find_url(settings)}/console"


def names_url(settings: Settings) -> bool:
    """Return True if the settings say at which URL clients reach the registry."""
    return bool(settings.public_url or settings.hosts)


def _path(settings: Settings) -> Path:
    return settings.data / _FILE
