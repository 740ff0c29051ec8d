"""The credentials that upstreams are asked with: sealed in their rules, never shown again."""

from __future__ import annotations

from cloudcore.keyring import Keyring
from registry.metadata.pull_through.rules import CacheRule
from registry.upstream.base import Credential


def seal_secret(keyring: Keyring, rule_id: str, secret: str) -> bytes:
    """Seal the secret of a rule."""
    return keyring.seal(secret.encode(), _context(rule_id))


def credential_of(keyring: Keyring, rule: CacheRule) -> Credential | None:
    """Return the credential of a rule, or None if its upstream is asked without one.

    Raises:
        KeyringError: it was sealed under another root key.

    """
    if rule.username is None or rule.secret_sealed is None:
        return None
    return Credential(rule.username, keyring.open(rule.secret_sealed, _context(rule.id)).decode())


def _context(rule_id: str) -> str:
    return f"pull-through-cache-rule:{rule_id}"
