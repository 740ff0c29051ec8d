"""What may be wrong with stored bytes."""

from typing import Final

ABSENT: Final = "absent"
"""The file does not exist."""
SIZE: Final = "size"
"""The file is shorter or longer than the object."""
DIGEST: Final = "digest"
"""The bytes hash to another digest."""
UNREADABLE: Final = "unreadable"
"""The disk cannot read the bytes."""
