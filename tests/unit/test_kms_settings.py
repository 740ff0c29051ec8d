"""Who wraps the material of keys by the settings, and what the root key derives."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudcore.keyring import KEY_BYTES, Keyring
from registry.composition.ports import key_providers
from registry.settings.reading import from_environment
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

DEFAULTS = Settings(data=Path("here"))
KEYRING = Keyring(bytes(32))
ARN = "arn:aws:kms:eu-central-1:123456789012:key/0198"


def providers_of(**variables: str) -> str:
    environ = {f"ENTREPOT_KMS_{name}": value for name, value in variables.items()}
    return key_providers(from_environment(environ, DEFAULTS), KEYRING).current.name


def test_the_setting_says_who_wraps_what_is_new() -> None:
    assert providers_of() == "embedded"
    assert providers_of(AWS_KEY=ARN) == "embedded"  # AWS still unwraps what it has wrapped
    assert providers_of(PROVIDER="aws", AWS_KEY=ARN) == "aws"


def test_aws_without_its_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudcore.kms.providers.find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match=r"pip install 'entrepot\[aws\]'"):
        providers_of(AWS_KEY=ARN)


def test_what_is_derived_depends_on_key_and_context_alone() -> None:
    one, other = Keyring(b"1" * KEY_BYTES), Keyring(b"2" * KEY_BYTES)
    assert one.derive("salt") == Keyring(b"1" * KEY_BYTES).derive("salt")
    assert len({one.derive("salt"), one.derive("Salt"), other.derive("salt")}) == 3
    assert len(one.derive("salt")) == 32
