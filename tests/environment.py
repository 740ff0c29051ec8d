"""The environment of tests that run commands in this process."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no setting of this machine count."""
    for name in [each for each in os.environ if each.startswith("ENTREPOT_")]:
        monkeypatch.delenv(name)
