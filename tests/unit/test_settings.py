"""Settings from the environment: pure, and strict about names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from registry.settings.groups import Limits
from registry.settings.reading import from_environment
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

DEFAULTS = Settings(data=Path("here"))


def test_without_variables_the_defaults_stand() -> None:
    assert from_environment({"PATH": "/bin", "HOME": "/root"}, DEFAULTS) == DEFAULTS


def test_every_setting_has_a_variable() -> None:
    found = from_environment(
        {
            "ENTREPOT_DATA": "/srv/data",
            "ENTREPOT_DATABASE_URL": "postgresql://db/entrepot",
            "ENTREPOT_HOST": "::1",
            "ENTREPOT_PORT": "80",
            "ENTREPOT_WORKERS": "2",
            "ENTREPOT_METRICS": "127.0.0.1:9090",
            "ENTREPOT_MAX_BLOB_BYTES": "1",
            "ENTREPOT_UPLOAD_IDLE_SECONDS": "2",
            "ENTREPOT_TOUCH_AFTER_SECONDS": "3",
            "ENTREPOT_MAX_OPEN_UPLOADS": "4",
            "ENTREPOT_MAX_OPEN_UPLOADS_PER_REPOSITORY": "5",
            "ENTREPOT_MAX_BUCKET_BYTES": "9",
            "ENTREPOT_REQUEST_SECONDS": "3600",
        },
        DEFAULTS,
    )
    assert found == Settings(
        data=Path("/srv/data"),
        database_url="postgresql://db/entrepot",
        host="::1",
        port=80,
        workers=2,
        metrics="127.0.0.1:9090",
        limits=Limits(
            max_blob_bytes=1,
            upload_idle_seconds=2,
            touch_after_seconds=3,
            max_open_uploads=4,
            max_bucket_bytes=9,
            max_open_uploads_per_repository=5,
            request_seconds=3600,
        ),
    )


@pytest.mark.parametrize("name", ["ENTREPOT_PROT", "ENTREPOT_", "ENTREPOT_LIMITS"])
def test_an_unknown_variable_of_ours_is_an_error(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        from_environment({name: "1"}, DEFAULTS)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "many", "1_000", "\u0661"])
@pytest.mark.parametrize("name", ["ENTREPOT_PORT", "ENTREPOT_MAX_BLOB_BYTES"])
def test_a_number_is_a_number(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=name):
        from_environment({name: text}, DEFAULTS)


def test_everything_lies_in_the_data_folder_unless_said_otherwise() -> None:
    settings = Settings(data=Path("here"))
    assert settings.database == f"sqlite:///{Path.cwd()}/here/metadata.db"
    assert settings.blobs == Path.cwd() / "here" / "blobs"
    elsewhere = Settings(data=Path("/srv"), database_url="postgresql://db/entrepot")
    assert elsewhere.database == "postgresql://db/entrepot"
    assert elsewhere.blobs == Path("/srv/blobs")


def test_limits_are_counted_in_microseconds() -> None:
    limits = Limits(upload_idle_seconds=2, touch_after_seconds=3)
    assert limits.upload_idle == 2_000_000
    assert limits.touch_after == 3_000_000


@pytest.mark.parametrize("region", ["", "eu west", "EU-1", "eu:1", "-eu", "eu-", "e" * 64])
def test_a_region_is_refused_by_its_own_name(region: str) -> None:
    """It stands in names of resources, whose parts colons divide."""
    with pytest.raises(SettingsError, match=f"^region: {region!r} is no name of a region such as"):
        replace(DEFAULTS, region=region)


def test_founders_are_a_choice_and_nobody_unless_made() -> None:
    assert DEFAULTS.founders == "nobody"
    assert from_environment({"ENTREPOT_FOUNDERS": "owners"}, DEFAULTS).founders == "owners"
    with pytest.raises(SettingsError, match="founders is one of nobody, owners, anyone"):
        from_environment({"ENTREPOT_FOUNDERS": "everyone"}, DEFAULTS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 65536),
        ("workers", 0),
        ("audit_seconds", 10**20),
        ("upload_idle_seconds", 10**17),
        ("gc_orphan_seconds", 4 * 10**9),
        ("scrub_every_seconds", 3599),
        ("max_blob_bytes", 2**64),
    ],
)
def test_a_number_out_of_range_is_refused_before_anything_starts(name: str, value: int) -> None:
    with pytest.raises(SettingsError, match=rf"{name} is a number from \d+ to \d+, not {value}"):
        from_environment({f"ENTREPOT_{name.upper()}": str(value)}, DEFAULTS)
