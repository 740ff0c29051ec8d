"""The mark of a data folder into which a restoration has begun and not ended."""

from __future__ import annotations

from typing import Final

from registry.setting_texts import SettingsError
from registry.settings import Settings

UNDER_WAY: Final = "restore-under-way"
"""A file in the data folder that holds the id of the backup until all of it is there."""


def check_is_whole(settings: Settings) -> None:
    """Raise `SettingsError` if a restoration into the data folder was interrupted."""
    if (settings.data / UNDER_WAY).exists():
        raise SettingsError(
            f"a restoration into {settings.data} was interrupted; "
            f"run the same 'entrepot restore' again, it goes on where it stopped"
        )
