"""The book of blobs: rows of `blob_objects`, the bytes of small ones in `inline_bytes`."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, and_, literal_column, select

from cloudcore.objects.book import Book, ObjectRow
from registry.metadata.tables import blob_objects, inline_bytes

_o = blob_objects.c
HAS_BYTES: Final[ColumnElement[bool]] = literal_column("blob_objects.state <> 'shredded'")
"""A shredded object has no bytes, and that is no damage."""

BLOB_BOOK: Final = Book(
    blob_objects,
    select(*(_o[name] for name in ObjectRow._fields[:-1]), inline_bytes.c.body)
    .select_from(blob_objects)
    .outerjoin(inline_bytes, and_(_o.is_inline, inline_bytes.c.stored_id == _o.stored_id)),
    stored_id=_o.stored_id,
    digest=_o.digest,
    has_bytes=HAS_BYTES,
    is_stored=and_(~_o.is_inline, HAS_BYTES),
)
