"""A person who only has a browser: logs a client in from the console, and founds an account."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.clients.console_pages import DESKTOP, PHONE, Watched, watched
from tests.clients.console_world import World
from tests.tools import require_tool


def lines_to_copy(window: Watched) -> dict[str, str]:
    """Return the lines of the page that has a button to copy each, by their labels."""
    found = window.page.locator(".line")
    return {
        each.locator(".label").inner_text(): each.locator("code").inner_text()
        for each in found.all()
    }


@pytest.mark.timeout(300)
def test_a_client_is_logged_in_and_then_an_account_is_founded(
    filled: World, windows: Browser, tmp_path: Path
) -> None:
    """By what a person sees: a button, another, and two lines to copy."""
    podman = require_tool("podman")
    with watched(windows, filled, **DESKTOP) as window:
        window.sign_in(f"/console/repositories/{filled.frontend}")
        window.page.get_by_text("Push an image").click()
        window.page.get_by_role("link", name="Log in docker").click()
        window.page.get_by_role("button", name="Make a password").click()
        window.page.get_by_role("heading", name="Two lines to copy").wait_for()
        window.check()
        window.page.get_by_text("With podman, skopeo or buildah").click()
        lines = lines_to_copy(window)
        command = shlex.split(lines["Instead of the first line, for podman"])
        assert command[0] == "podman"
        password = lines["2. Paste this when it asks for the password"]
        auth = tmp_path / "auth.json"
        login = [podman, *command[1:], "--authfile", str(auth), "--password-stdin"]
        subprocess.run(login, input=password, text=True, check=True, capture_output=True)
        (host,) = json.loads(auth.read_text())["auths"]
        assert lines["1. Run this where docker is"] == f"docker login --username token {host}"
        skopeo = [require_tool("skopeo"), "inspect", "--tls-verify=false", "--authfile", str(auth)]
        image = f"docker://{host}/acme/shop/frontend:latest"
        told = subprocess.run([*skopeo, image], check=True, capture_output=True, text=True)
        assert json.loads(told.stdout)["Name"] == f"{host}/acme/shop/frontend"

        window.page.get_by_role("link", name="I have copied it").click()
        window.page.get_by_role("button", name="Revoke docker").click()
        window.page.get_by_text("The password was revoked").wait_for()
        again = subprocess.run(login, input=password, text=True, check=False, capture_output=True)
        assert again.returncode != 0
        assert "invalid username/password" in again.stderr
    open_account(filled, windows)


def open_account(filled: World, windows: Browser) -> None:
    """Found a second account on a phone, and go there."""
    with watched(windows, filled, **PHONE) as window:
        window.open_signed_in()
        window.page.locator(".account summary").click()
        window.page.get_by_role("link", name="Accounts", exact=True).click()
        window.page.get_by_label("Handle").fill("second")
        window.page.get_by_role("button", name="Create the account").click()
        window.page.get_by_text("The account was created").wait_for()
        window.check()
        window.page.get_by_role("button", name="Work in it as admin: second").click()
        window.page.locator(".account summary").get_by_text("second").wait_for()
