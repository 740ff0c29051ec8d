"""What storage usage says that compression saves."""

from __future__ import annotations

import pytest

from registry.services.storage_usage import saved_by_compression
from registry.settings.reading import from_environment
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError
from tests.live import ROOT


@pytest.mark.parametrize(
    ("unique", "stored", "restorable", "pending", "saved"),
    [
        (0, 0, 0, 0, 0),
        (1000, 400, 0, 0, 600),
        (1000, 700, 200, 100, 600),  # what is deleted is no saving
        (1000, 900, 50, 7, 157),
        (1000, 1128, 0, 0, 0),  # sealed bytes that are not compressed are a few more
    ],
)
def test_the_saving_is_of_what_images_need(
    unique: int, stored: int, restorable: int, pending: int, saved: int
) -> None:
    assert saved_by_compression(unique, stored, restorable, pending) == saved


def test_the_switch_is_on_or_off() -> None:
    assert Settings(data=ROOT).compression == "on"
    environ = {"ENTREPOT_COMPRESSION": "off"}
    assert from_environment(environ, Settings(data=ROOT)).compression == "off"
    with pytest.raises(SettingsError, match="on or off"):
        from_environment({"ENTREPOT_COMPRESSION": "zstd"}, Settings(data=ROOT))
