"""The URL that commands beside ``entrepot serve`` tell."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from registry.cli.server.run_server import read_url, write_url
from registry.settings.settings import Settings


def test_the_url_of_the_last_server_is_told_unless_the_settings_name_one(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)
    assert read_url(settings) == "http://127.0.0.1:5000"
    for url in ("http://127.0.0.1:5001", "http://[::1]:8080"):
        write_url(settings, url)
        assert read_url(settings) == url
    public = replace(settings, public_url="https://registry.example.com")
    assert read_url(public) == "https://registry.example.com"


@pytest.mark.parametrize("kept", [b"", b"\xff\n", b"http://x\x1b[2J\n", b"not a url\n"])
def test_a_file_of_something_else_is_not_told(tmp_path: Path, kept: bytes) -> None:
    (tmp_path / "served-url").write_bytes(kept)
    assert read_url(Settings(data=tmp_path)) == "http://127.0.0.1:5000"


def test_a_url_that_cannot_be_written_does_not_stop_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "served-url").mkdir()
    with caplog.at_level(logging.WARNING):
        write_url(Settings(data=tmp_path), "http://127.0.0.1:5001")
    assert "cannot write the URL" in caplog.text
    assert read_url(Settings(data=tmp_path)) == "http://127.0.0.1:5000"
