"""Read the entries of a layer's tar strictly, as a stream, in bounded memory.

The accepted formats are those that container clients write: ustar, pax (POSIX.1-2001) and the long
names of GNU tar. Formats that readers interpret differently are refused, and so are entries that a
layer cannot have. Part of the program `unpack`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, Protocol

BLOCK: Final = 512
CHUNK: Final = 256 * 1024
MOST_DEPTH: Final = 100
"""Maximum names in a path."""
MOST_PATH: Final = 4095
MOST_NAME: Final = 255
_MOST_EXTENSION: Final = 1 << 20
"""Maximum bytes of an extended header: extended attributes may make it long."""
_MOST_SIZE: Final = 1 << 62
_MOST_TIME: Final = 1 << 33
"""In the year 2242: file systems store later times differently."""
_MOST_SHOWN: Final = 120
_PAX_KEYS: Final = frozenset({b"path", b"linkpath", b"size", b"uid", b"gid", b"mtime"})
"""Fields of extended headers that are read; extended attributes and capabilities are dropped."""
_DEVICES: Final = {b"3": "a character device", b"4": "a block device", b"6": "a fifo"}

Kind = Literal["file", "folder", "symlink", "hardlink"]
Path = tuple[bytes, ...]
"""The names of a path below the root; the root itself has none."""


class LayerRefused(Exception):
    """A layer was refused because of its contents; the message says why in one line."""


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; empty at the end."""


class TarEntry(NamedTuple):
    """An entry of a layer."""

    kind: Kind
    path: Path
    mode: int
    uid: int
    gid: int
    mtime: int
    """Seconds since the epoch, not negative."""
    size: int
    """Bytes of a file that follow; 0 for other entries."""
    target: bytes
    """The target of a symbolic link; empty for other entries."""
    linked: Path
    """The path of the file to which a hard link refers; empty for other entries."""


def shown(path: bytes) -> str:
    """Return a path for messages: in printable ASCII, and truncated if it is long."""
    text = ascii(path.decode("utf-8", "backslashreplace"))[1:-1]
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


class TarEntries:
    """The entries of a tar; `data` yields the bytes of the current file."""

    def __init__(self, source: Readable, most_entries: int) -> None:
        self._source = source
        self._most = most_entries
        self._left = 0
        """Bytes of the entry's file that were not read yet."""
        self._padding = 0
        self.count = 0
        """Headers read so far, including those that only extend other headers."""

    def __iter__(self) -> Iterator[TarEntry]:
        """Yield the entries in order.

        Raise `LayerRefused` if the tar is broken or truncated, or has entries that are not allowed.
        """
        extended: dict[bytes, bytes] = {}
        while (header := self._header()) is not None:
            self.count += 1
            if self.count > self._most:
                raise LayerRefused(f"the layer has more than the {self._most} entries an image may")
            kind = header[156:157]
            if kind in b"xgLK":
                self._extend(extended, kind, header)
                continue
            yield self._entry(header, kind, extended)
            extended = {}
            for _ in self.data():
                pass  # skip bytes that were not read
            self._exactly(self._padding)
        if extended:
            raise LayerRefused("the tar ends after an extended header")

    def data(self) -> Iterator[bytes]:
        """Yield the remaining bytes of the current file; raise `LayerRefused` if truncated."""
        while self._left:
            part = self._source.read(min(self._left, CHUNK))
            if not part:
                raise _cut()
            self._left -= len(part)
            yield part

    def _header(self) -> bytes | None:
        """Return the next header; None at the end (a block of zeros, or no more bytes)."""
        block = self._up_to(BLOCK)
        if not block or not block.strip(b"\0"):
            return None
        if len(block) < BLOCK:
            raise _cut()
        claimed = _number(block[148:156], "checksum")
        if claimed != sum(block) - sum(block[148:156]) + 8 * ord(" "):
            raise LayerRefused("the tar has a header with a wrong checksum")
        return block

    def _extend(self, extended: dict[bytes, bytes], kind: bytes, header: bytes) -> None:
        """Read an extended header: pax for the next or for all entries, or a GNU long name."""
        size = _number(header[124:136], "size")
        if size > _MOST_EXTENSION:
            raise LayerRefused(f"the tar has an extended header of {size} bytes")
        data = self._exactly(size)
        self._exactly(-size % BLOCK)
        if kind in b"LK":
            extended[b"path" if kind == b"L" else b"linkpath"] = data.partition(b"\0")[0]
            return
        found = dict(_pax_records(data))
        if kind == b"x":
            extended.update(found)
        elif not _PAX_KEYS.isdisjoint(found):
            raise LayerRefused("the tar has a global header that changes all entries after it")

    def _entry(self, header: bytes, kind: bytes, extended: dict[bytes, bytes]) -> TarEntry:
        is_ustar = header[257:263] == b"ustar\0"
        name, prefix = _text(header[:100]), _text(header[345:500])
        if is_ustar and prefix:
            name = prefix + b"/" + name
        name = extended.get(b"path", name)
        target = extended.get(b"linkpath", _text(header[157:257]))
        if b"\0" in name or b"\0" in target:
            raise LayerRefused(f"the name {shown(name)} has a zero byte")
        size = _extended_number(extended, b"size", header[124:136])
        found = _kind(kind, name, size)
        self._left = size if found == "file" else 0
        self._padding = -self._left % BLOCK
        if found == "symlink" and not 0 < len(target) <= MOST_PATH:
            raise LayerRefused(f"the symbolic link {shown(name)} names nothing, or too long a path")
        return TarEntry(
            kind=found,
            path=_path(name),
            mode=_number(header[100:108], "mode"),
            uid=_extended_number(extended, b"uid", header[108:116]),
            gid=_extended_number(extended, b"gid", header[116:124]),
            mtime=_mtime(extended, header[136:148]),
            size=self._left,
            target=target if found == "symlink" else b"",
            linked=_path(target) if found == "hardlink" else (),
        )

    def _exactly(self, size: int) -> bytes:
        data = self._up_to(size)
        if len(data) < size:
            raise _cut()
        return data

    def _up_to(self, size: int) -> bytes:
        """Return the next `size` bytes, or fewer at the end."""
        data = self._source.read(size) if size else b""
        while 0 < len(data) < size and (more := self._source.read(size - len(data))):
            data += more
        return data


def _cut() -> LayerRefused:
    return LayerRefused("the tar ends in the middle of an entry")


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes, name: str) -> int:
    """Parse a number in octal or, for GNU tar, in base 256."""
    if field[0] & 0x80:
        value = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
        if field[0] == 0xFF or value > _MOST_SIZE:
            raise LayerRefused(f"the tar has a header with an impossible {name}")
        return value
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise LayerRefused(f"the tar has a header whose {name} is no number")
    return int(digits or b"0", 8)


def _extended_number(extended: dict[bytes, bytes], key: bytes, field: bytes) -> int:
    value = extended.get(key)
    if value is None:
        return _number(field, key.decode())
    if not value.isdigit() or len(value) > 19 or int(value) > _MOST_SIZE:
        raise LayerRefused(f"the tar has an extended header with an impossible {key.decode()}")
    return int(value)


def _mtime(extended: dict[bytes, bytes], field: bytes) -> int:
    value = extended.get(b"mtime")
    if value is None:
        return 0 if field[0] == 0xFF else min(_number(field, "time"), _MOST_TIME)
    whole = value.partition(b".")[0]
    return min(int(whole), _MOST_TIME) if whole.isdigit() and len(whole) < 20 else 0


def _kind(kind: bytes, name: bytes, size: int) -> Kind:
    if kind in _DEVICES:
        raise LayerRefused(f"{shown(name)} is {_DEVICES[kind]}, which no layer may have")
    if kind in (b"0", b"\0", b"7"):
        if name.endswith(b"/"):
            if size:
                raise LayerRefused(f"{shown(name)} is a file by its type, and a folder by its name")
            return "folder"
        return "file"
    found: Kind | None = {b"1": "hardlink", b"2": "symlink", b"5": "folder"}.get(kind)  # type: ignore[assignment]
    if found is None:
        raise LayerRefused(f"{shown(name)} is of type {ascii(kind)[1:]}, which no layer may have")
    return found


def _path(name: bytes) -> Path:
    """Split a path into its names; raise `LayerRefused` if it leads outside or is too long."""
    if not name or len(name) > MOST_PATH:
        raise LayerRefused("the tar has an entry without a name, or with one too long")
    if name.startswith(b"/"):
        raise LayerRefused(f"{shown(name)} is an absolute name; those of a layer begin at its root")
    names = tuple(each for each in name.split(b"/") if each not in (b"", b"."))
    if b".." in names:
        raise LayerRefused(f"{shown(name)} leads out of the layer")
    if len(names) > MOST_DEPTH:
        raise LayerRefused(f"{shown(name)} lies more than {MOST_DEPTH} folders deep")
    if any(len(each) > MOST_NAME for each in names):
        raise LayerRefused(f"{shown(name)} has a name of more than {MOST_NAME} bytes")
    return names


def _pax_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keyword and value of each supported pax record (POSIX, "Extended Header")."""
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 20)
        length = data[at:space] if space > 0 else b""
        end = at + int(length) if length.isdigit() else 0
        record = data[space + 1 : end]
        if end > len(data) or not record.endswith(b"\n") or b"=" not in record:
            raise LayerRefused("the tar has an extended header that cannot be read")
        key, _, value = record[:-1].partition(b"=")
        if key.startswith(b"GNU.sparse."):
            raise LayerRefused("the tar has a sparse file, which no layer may have")
        if key in _PAX_KEYS:
            yield key, value
        at = end
