"""Any tar that Python writes is read as Python reads it, and no bytes make the reader fail."""

from __future__ import annotations

import io
import os
import tarfile
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st

from registry.image_roots.layer_tree import LayerTree
from registry.image_roots.tar_entries import LayerRefused, TarEntries, TarEntry
from tests.busybox_images import entry, file, folder, tar_of

_KINDS: Final = {
    "file": tarfile.REGTYPE,
    "folder": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
    "hardlink": tarfile.LNKTYPE,
}
_NAME: Final = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=80
).filter(lambda name: name not in (".", ".."))
_PATH: Final = st.lists(_NAME, min_size=1, max_size=4).map("/".join)
_HOSTILE: Final = st.sampled_from(
    ["l", "l/x", "a", "a/b", "a/../../x", "../x", ".wh.l", ".wh..wh..opq", "l/.wh.x", "."]
)


@st.composite
def entries(draw: st.DrawFn) -> tuple[tarfile.TarInfo, bytes]:
    """Return an entry that a layer may have."""
    kind = draw(st.sampled_from(sorted(_KINDS)))
    data = draw(st.binary(max_size=2000)) if kind == "file" else b""
    made = entry(
        draw(_PATH),
        _KINDS[kind],
        draw(st.integers(0, 0o7777)),
        uid=draw(st.integers(0, 1 << 40)),
        gid=draw(st.integers(0, 1 << 21)),
        mtime=draw(st.integers(0, 1 << 33)),
        size=len(data),
        linkname=draw(_PATH) if "link" in kind else "",
    )
    return made, data


def _read(tar: bytes, most: int = 10_000) -> list[tuple[TarEntry, bytes]]:
    found = TarEntries(io.BytesIO(tar), most)
    return [(each, b"".join(found.data())) for each in found]


@given(st.lists(entries(), max_size=5), st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
def test_what_python_writes_is_read_as_python_reads_it(
    given_: list[tuple[tarfile.TarInfo, bytes]], form: int
) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form) as tar:
        for made, data in given_:
            tar.addfile(made, io.BytesIO(data))
    read = _read(target.getvalue())
    with tarfile.open(fileobj=io.BytesIO(target.getvalue())) as tar:
        members = tar.getmembers()
    assert len(read) == len(members) == len(given_)
    for (ours, content), theirs, (_, data) in zip(read, members, given_, strict=True):
        assert b"/".join(ours.path) == os.fsencode(theirs.name.strip("/"))
        assert _KINDS[ours.kind] == theirs.type
        assert (ours.mode, ours.uid, ours.gid, ours.mtime) == (
            *(theirs.mode, theirs.uid, theirs.gid),
            theirs.mtime,
        )
        assert content == data
        if theirs.issym():
            assert ours.target == os.fsencode(theirs.linkname)
        if theirs.islnk():
            assert b"/".join(ours.linked) == os.fsencode(theirs.linkname)


def _words(tar: bytes) -> str:
    """Return why a tar is refused; nothing if it is not."""
    try:
        _read(tar, most=100)
    except LayerRefused as refused:
        return str(refused)
    return ""


@given(
    st.lists(entries(), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0), st.binary(min_size=1, max_size=12)), max_size=6),
    st.integers(0),
)
def test_no_bytes_do_anything_but_be_refused(
    given_: list[tuple[tarfile.TarInfo, bytes]], changes: list[tuple[int, bytes]], cut: int
) -> None:
    tar = bytearray(tar_of(*given_))
    for at, data in changes:
        start = at % len(tar)
        tar[start : start + len(data)] = data
    assert _words(bytes(tar[: len(tar) - cut % len(tar)])).isprintable()


@st.composite
def hostile(draw: st.DrawFn) -> tuple[tarfile.TarInfo, bytes]:
    """Return an entry of few names, which others link to, hide, and replace."""
    name, target = draw(_HOSTILE), draw(st.just("OUTSIDE") | _HOSTILE)
    kind = draw(st.sampled_from(sorted(_KINDS)))
    match kind:
        case "file":
            return file(name, b"evil")
        case "folder":
            return folder(name), b""
        case _:
            return entry(name, _KINDS[kind], linkname=target), b""


def _led_to(outside: Path, made: tarfile.TarInfo, data: bytes) -> tuple[tarfile.TarInfo, bytes]:
    """Return an entry whose link leads to a folder, if it is to lead outside."""
    led = copy(made)
    led.linkname = made.linkname.replace("OUTSIDE", str(outside))
    return led, data


_THROUGH: Final = [(entry("l", tarfile.SYMTYPE, linkname="OUTSIDE"), b""), file("l/x", b"evil")]


@given(st.lists(hostile(), min_size=2, max_size=8))
@example(_THROUGH)
@example([_THROUGH[0], (entry("a", tarfile.LNKTYPE, linkname="l/x"), b""), file("a", b"evil")])
def test_nothing_outside_is_changed_whatever_a_layer_says(
    given_: list[tuple[tarfile.TarInfo, bytes]],
) -> None:
    with TemporaryDirectory() as name:
        place = Path(name)
        outside, layer = place / "outside", place / "layer"
        outside.mkdir()
        (outside / "x").write_bytes(b"mine")
        layer.mkdir()
        tar = tar_of(*(_led_to(outside, *each) for each in given_))
        root = os.open(layer, os.O_RDONLY)
        tree = LayerTree(root, None)
        try:
            found = TarEntries(io.BytesIO(tar), 100)
            for each in found:
                tree.add(each, found.data())
        except LayerRefused:
            pass
        finally:
            tree.close()
            os.close(root)
        assert sorted(each.name for each in place.iterdir()) == ["layer", "outside"]
        assert [each.name for each in outside.iterdir()] == ["x"]
        assert (outside / "x").read_bytes() == b"mine"
        assert (outside / "x").stat().st_nlink == 1
