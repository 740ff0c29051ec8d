"""Settings from the environment: pure, and strict about names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from registry.settings.groups import Limits, Microseconds
from registry.settings.reading import from_environment
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

DEFAULTS = Settings(data=Path("here"))


class Refused(NamedTuple):
    """Settings that are refused, and a part of what is said of them."""

    settings: Mapping[str, str]
    words: str


def refused() -> Iterator[Refused]:
    """Yield the lines of the table."""
    base: dict[str, str] = {}
    _, *blocks = Path(__file__).with_name("refused_settings.txt").read_text().split("\n\n")
    for line in filter(None, "\n".join(blocks).split("\n")):
        text, _, words = line.partition("  ")
        given = dict(each.split("=", 1) for each in shlex.split(text.strip("[]")))
        if words:
            yield Refused(base | given, words)
        else:
            base = given


@pytest.mark.parametrize("line", list(refused()), ids=lambda line: line.words)
def test_what_cannot_be_is_refused_before_anything_starts(line: Refused) -> None:
    environ = {f"ENTREPOT_{name.upper()}": text for name, text in line.settings.items()}
    with pytest.raises(SettingsError, match=re.escape(line.words)) as told:
        from_environment(environ, DEFAULTS)
    assert "secret" not in str(told.value)


def test_without_variables_the_defaults_stand() -> None:
    assert from_environment({"PATH": "/bin", "HOME": "/root"}, DEFAULTS) == DEFAULTS


def test_every_setting_has_a_variable() -> None:
    own: dict[str, Any] = {
        "data": Path("/srv/data"),
        "database_url": "postgresql://db/entrepot",
        "host": "::1",
        "port": 80,
        "workers": 2,
        "metrics": "127.0.0.1:9090",
    }
    limits = {
        "max_blob_bytes": 1,
        "upload_idle_seconds": 2,
        "touch_after_seconds": 3,
        "max_open_uploads": 4,
        "max_bucket_bytes": 9,
        "max_open_uploads_per_repository": 5,
        "request_seconds": 3600,
    }
    environ = {f"ENTREPOT_{name.upper()}": str(value) for name, value in (own | limits).items()}
    assert from_environment(environ, DEFAULTS) == Settings(**own, limits=Limits(**limits))


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
    assert isinstance(Limits.touch_after, Microseconds)


def test_founders_are_a_choice_and_nobody_unless_made() -> None:
    assert DEFAULTS.founders == "nobody"
    assert from_environment({"ENTREPOT_FOUNDERS": "owners"}, DEFAULTS).founders == "owners"
