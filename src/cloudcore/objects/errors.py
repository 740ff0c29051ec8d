"""Why a data key does not open, or cannot be wrapped. Families say it in their own words."""

from cloudcore.errors import AccessDenied, NotFound


class KeyDeleted(NotFound):
    """The KMS key was deleted, or there is none."""

    def __init__(self, message: str = "the KMS key was deleted") -> None:
        super().__init__(message, reason="kms_key_not_found")


class KeyDisabled(AccessDenied):
    """The KMS key is disabled, or its deletion is pending."""

    def __init__(
        self, message: str = "the KMS key is disabled, or its deletion is pending"
    ) -> None:
        super().__init__(message, reason="kms_key_disabled")


class WrapBroken(Exception):
    """A wrapped data key does not open: its row was changed. No client sees this error."""
