"""The settings of billing: who processes payments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class BillingSettings:
    """Who processes the payments of invoices."""

    payment_processor: Literal["embedded", "stripe"] = "embedded"
    """``embedded``: test cards, which move no money; ``stripe``: Stripe."""
    stripe_key_file: str = ""
    """File of the secret key of Stripe, which others may not read."""
    stripe_endpoint: str = ""
    """URL of Stripe's API; empty: Stripe's own."""

    @property
    def problem(self) -> str:
        """Return what is wrong, with the setting before it, or an empty string."""
        if self.payment_processor not in ("embedded", "stripe"):
            return f"payment_processor is embedded or stripe, not {self.payment_processor!r}"
        if self.payment_processor == "stripe" and not self.stripe_key_file:
            return "payment_processor stripe needs stripe_key_file, the file of its secret key"
        return ""

    def read_key(self) -> str:
        """Return the secret key of Stripe.

        Raises:
            ValueError: the file cannot be read, or others can read it, or it has no key.

        """
        path = Path(self.stripe_key_file)
        try:
            mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read {path}: {error}") from None
        if mode & 0o077:
            raise ValueError(f"others can read {path}: chmod 600 it")
        if not text or len(text.split()) != 1:
            raise ValueError(f"{path} has no key")
        return text
