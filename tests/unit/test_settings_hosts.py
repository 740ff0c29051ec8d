"""Under which names the registry is known: one public URL, or hosts that requests may name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from registry.cli.server.setting_checks import refusals
from registry.composition.planes import PARTS, parts_by_name, planes_of
from registry.settings.reading import from_environment
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

HERE = Path("here")


@pytest.mark.parametrize(
    ("settings", "url", "pull_host"),
    [
        (Settings(HERE), "http://127.0.0.1:5000", "127.0.0.1:5000"),
        (Settings(HERE, host="::1", port=80), "http://[::1]:80", "[::1]:80"),
        (Settings(HERE, public_url="https://r.example/"), "https://r.example", "r.example"),
        (Settings(HERE, allowed_hosts="one:80, two"), "http://one:80", "one:80"),
        (
            Settings(HERE, public_url="https://r.example:8443", allowed_hosts="one"),
            "https://r.example:8443",
            "r.example:8443",
        ),
    ],
)
def test_one_name_stands_in_tokens_and_references(
    settings: Settings, url: str, pull_host: str
) -> None:
    assert (settings.url, settings.pull_host) == (url, pull_host)


def test_hosts_are_listed_in_the_environment() -> None:
    found = from_environment({"ENTREPOT_ALLOWED_HOSTS": "one:5000,[::1]:80, two,"}, Settings(HERE))
    assert found.hosts == ("one:5000", "[::1]:80", "two")
    assert Settings(HERE).hosts == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0", "", "0:0::0"])
def test_every_address_is_no_url(host: str) -> None:
    with pytest.raises(SettingsError, match="ENTREPOT_PUBLIC_URL"):
        Settings(HERE, host=host).check_has_url()
    assert Settings(HERE, host=host).url == "http://127.0.0.1:5000"
    Settings(HERE, host=host, public_url="https://one").check_has_url()
    Settings(HERE, host=host, allowed_hosts="one:5000").check_has_url()
    Settings(HERE).check_has_url()


@pytest.mark.parametrize(
    ("host", "port", "metrics"),
    [
        ("127.0.0.1", 5000, "127.0.0.1:5002"),
        ("127.0.0.1", 5000, "127.0.0.2:5000"),
        ("0.0.0.0", 5000, "[::1]:5000"),
        ("127.0.0.1", 0, "127.0.0.1:0"),
    ],
)
def test_metrics_are_on_any_other_address(host: str, port: int, metrics: str) -> None:
    assert Settings(HERE, host=host, port=port, metrics=metrics).metrics == metrics


@pytest.mark.parametrize("below", ["", "data", "a/b"])
def test_data_that_are_a_file_are_refused(below: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    Settings(tmp_path / below).check_data()
    with pytest.raises(SettingsError, match=re.escape(f"data: {file} is a file")):
        Settings(file / below).check_data()


def test_a_part_has_a_host_of_its_own_and_the_rest_that_of_the_public_url() -> None:
    named = "pull=CR.example:5000, auth=a.example,pull=old.example,queue=a.example"
    found = Settings(HERE, public_url="https://one:8443/", family_hosts=named)
    assert (found.pull_host, found.url) == ("cr.example:5000", "https://one:8443")
    assert found.url_of("auth") == found.url_of("queue") == "https://a.example"
    assert found.url_of("console") == found.url_of("kms") == found.url
    served = parts_by_name(found)
    assert {name: served[name] for name in ("cr.example", "old.example", "a.example")} == {
        "cr.example": {"pull"},
        "old.example": {"pull"},
        "a.example": {"auth", "queue"},
    }
    assert served["one"] == {*PARTS} - {"pull", "auth", "queue"}
    assert parts_by_name(Settings(HERE, public_url="https://one")) == {}


@pytest.mark.parametrize("part", ["iam", "catalog", "kernel", "s3", "PULL"])
def test_only_what_can_have_a_host_has_one(part: str) -> None:
    found = Settings(HERE, public_url="https://one", family_hosts=f"{part}=cr.example")
    words = f"family_hosts: '{part}' has no host of its own; before the = is one of pull, console, "
    with pytest.raises(SettingsError, match=re.escape(words)):
        planes_of(found)
    assert any(each.startswith(words) for each in refusals(found))
