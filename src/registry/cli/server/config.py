"""``entrepot config show``: print the settings in force, and the source of each."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from cloudcore.commands.parser import Verbs, add_noun
from cloudcore.commands.records import write_now
from registry.cli.server.options import (
    add_acme,
    add_allowed_hosts,
    add_data,
    add_s3,
    add_serving,
    config_path,
    given_options,
    settings_of,
)
from registry.settings.reading import LISTS, NAMES, read_config, values_of
from registry.settings.settings import Settings
from registry.settings.texts import PREFIX, SettingsError, listed

_HIDDEN: Final = "***"
_PASSWORD: Final = re.compile(r"(?<=://)([^/:@]*:)[^/]+@")
"""The password in a URL, even with ``#`` or ``?``, which end the host for ``urlsplit``."""
_SECRET_PARAMETER: Final = re.compile(r"(password=)[^&\s]*")


def add_parsers(commands: Verbs) -> None:
    """Add ``config`` and its commands."""
    verbs = add_noun(commands, "config", "the settings of a server (on the registry's machine)")
    words = "show the settings in force, without secrets, and where each comes from"
    show = verbs.add_parser("show", help=words, description=f"{words.capitalize()}.")
    add_serving(show)
    add_acme(show)
    add_s3(show)
    add_allowed_hosts(show)
    add_data(show)
    show.set_defaults(run=_show)


def _show(options: argparse.Namespace) -> None:
    from registry.cli.server.setting_checks import refusals  # noqa: PLC0415 - this command's alone

    settings = settings_of(options)
    path = config_path(options)
    origins = _origins(options, {} if path is None else read_config(path), str(path))
    values = _values(settings)
    width = max(len(_line(name, values[name])) for name in NAMES if len(str(values[name])) < 40)
    lines = [f"{_line(name, values[name]):<{width}}  # {origins[name]}" for name in NAMES]
    write_now("\n".join([f"# clients reach it at {settings.url}", *lines, ""]))
    problems = list(refusals(settings))
    if problems:
        raise SettingsError("serve would refuse these settings: " + "; ".join(problems))


def _origins(
    options: argparse.Namespace, config: Mapping[str, object], path: str
) -> Mapping[str, str]:
    """Map each setting to the source of its value."""
    origins = dict.fromkeys(NAMES, "default") | dict.fromkeys(config, path)
    for name in NAMES:
        if PREFIX + name.upper() in os.environ:
            origins[name] = PREFIX + name.upper()
    return origins | dict.fromkeys(given_options(options), "command line")


def _values(settings: Settings) -> Mapping[str, object]:
    values = values_of(settings)
    for name in ("database_url", "smtp_url"):
        values[name] = _without_password(str(values[name]))
    for name in LISTS:
        values[name] = listed(str(values[name]))
    return values | {"data": str(settings.data)}


def _line(name: str, value: object) -> str:
    """Return a line of TOML, which writes strings, numbers and lists of strings like JSON."""
    return f"{name} = {msgspec.json.encode(value).decode()}"


def _without_password(url: str) -> str:
    shown = _PASSWORD.sub(rf"\g<1>{_HIDDEN}@", url)
    return _SECRET_PARAMETER.sub(rf"\g<1>{_HIDDEN}", shown)
