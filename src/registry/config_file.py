"""Read settings from a TOML file: the names of the settings, in lower case and without tables."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from registry.setting_names import LISTS, NAMES, NUMBERS, similar_name
from registry.setting_texts import SettingsError


def read_config(path: Path) -> Mapping[str, str | int]:
    """Return the settings in a file; a list is joined with commas, as in the environment.

    Raises:
        OSError: the file cannot be read.
        SettingsError: it is no TOML, names an unknown setting, or a value has the wrong type.

    """
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
