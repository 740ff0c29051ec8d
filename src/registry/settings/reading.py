"""Read settings by name, from environment variables and from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from registry.settings.certificates import AcmeSettings, CertificateSettings
from registry.settings.email import EmailSettings
from registry.settings.groups import BillingSettings, Delays, Limits, PlainSealing, Scrubbing
from registry.settings.node import NodeSettings
from registry.settings.settings import Settings
from registry.settings.store import StoreSettings
from registry.settings.texts import PREFIX, SettingsError

CLIENT_VARIABLES: Final = frozenset(
    PREFIX + name
    for name in (
        "ACCESS_KEY_ID",
        "CREDENTIALS",
        "INSECURE_HTTP",
        "REGISTRY",
        "SECRET_ACCESS_KEY",
        "SECRET_ACCESS_KEY_FILE",
    )
)
"""Variables of the commands that call a registry; a server ignores them."""
GROUPS: Final = {
    "acme": AcmeSettings,
    "certificates": CertificateSettings,
    "billing": BillingSettings,
    "email": EmailSettings,
    "node": NodeSettings,
    "limits": Limits,
    "delays": Delays,
    "scrubbing": Scrubbing,
    "plain_sealing": PlainSealing,
    "store": StoreSettings,
}
"""Maps the fields of `Settings` that hold a group to the group's class."""
_PAGE: Final = "docs/reference/settings.md"
_GROUP_OF: Final = {item.name: name for name, group in GROUPS.items() for item in fields(group)}
NUMBERS: Final = frozenset(
    item.name
    for group in (Settings, *GROUPS.values())
    for item in fields(group)
    if item.type == "int"
)
"""The settings that are whole numbers; all others are text."""
LISTS: Final = frozenset(
    {
        *("allowed_hosts", "trusted_proxies", "cors_origins"),
        *("oidc_internal_origins", "upstream_allowed", "webhook_allowed", "mirrors", "tls_acme"),
        *("certificate_grants", "dns_name_servers", "family_hosts", "email_allowed"),
        *("email_dedicated_ips", "network_ipv6_ranges", "balancer_vips", "operators"),
        "balancer_targets",
        "database_networks",
    }
)
"""The settings that are lists, separated by commas."""
NAMES: Final = (
    *(item.name for item in fields(Settings) if item.name not in GROUPS),
    *_GROUP_OF,
)
"""The names of all settings, including those in groups."""


def from_environment(environ: Mapping[str, str], defaults: Settings) -> Settings:
    """Return `defaults` overridden by the ``ENTREPOT_*`` environment variables.

    Raise `SettingsError` if a variable is not a setting, or a value is not a whole number.
    """
    values: dict[str, str | int] = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in CLIENT_VARIABLES:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in NAMES:
            alike = similar_name(name)
            meant = f"did you mean {PREFIX}{alike.upper()}?" if alike else f"{_PAGE} lists them"
            raise SettingsError(f"{variable} is not a setting; {meant}")
        values[name] = _number(variable, text) if name in NUMBERS else text
    return with_values(defaults, values)


def with_values(defaults: Settings, values: Mapping[str, str | int]) -> Settings:
    """Return `defaults` overridden by `values`; each key is in `NAMES`."""
    top: dict[str, Any] = {
        name: Path(str(value)) if name == "data" else value
        for name, value in values.items()
        if name not in _GROUP_OF
    }
    for group in GROUPS:
        own: dict[str, Any] = {
            name: value for name, value in values.items() if _GROUP_OF.get(name) == group
        }
        top[group] = replace(getattr(defaults, group), **own)
    return replace(defaults, **top)


def values_of(settings: Settings) -> dict[str, Any]:
    """Map the name of each setting, including those in groups, to its value."""
    return {
        name: getattr(getattr(settings, _GROUP_OF[name]) if name in _GROUP_OF else settings, name)
        for name in NAMES
    }


def similar_name(name: str) -> str:
    """Return the setting with the name most like `name`, or "" if none is similar."""
    return next(iter(get_close_matches(name.lower(), NAMES, n=1)), "")


def _number(variable: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise SettingsError(f"{variable} must be a whole number, not {text!r}")
    return int(text)


def read_config(path: Path) -> Mapping[str, str | int]:
    """Map setting names to their values in a TOML file; lists become text with commas.

    Raise `OSError` if the file cannot be read, `SettingsError` if it is not TOML, has an unknown
    setting, or a value has the wrong type.
    """
    import tomllib  # noqa: PLC0415 - most servers have no file

    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from None
    return {name: _value(path, name, value) for name, value in document.items()}


def _value(path: Path, name: str, value: object) -> str | int:
    if name not in NAMES:
        if isinstance(value, dict):
            raise SettingsError(f"{path}: there are no tables; take the line [{name}] out")
        alike = similar_name(name)
        meant = f"; did you mean {alike}?" if alike else ""
        raise SettingsError(f"{path}: {name} is not a setting{meant}")
    if name in NUMBERS:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise SettingsError(f"{path}: {name} must be a whole number, not {value!r}")
        return value
    if name in LISTS and isinstance(value, list):
        if not all(isinstance(each, str) and "," not in each for each in value):
            raise SettingsError(f"{path}: {name} must be a list of strings, not {value!r}")
        return ",".join(value)
    if not isinstance(value, str):
        kind = "a string or a list of strings" if name in LISTS else "a string"
        raise SettingsError(f"{path}: {name} must be {kind}, not {value!r}")
    return value
