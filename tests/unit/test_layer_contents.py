"""What is unpacked of a layer, and what is refused, without the program around it."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cloudcore.compute.images import IDS
from registry.image_roots.layer_tree import LayerTree
from registry.image_roots.tar_entries import BLOCK, MOST_DEPTH, LayerRefused, TarEntries
from tests.busybox_images import entry, file, folder, tar_of
from tests.tools import require_tool

IS_ROOT: Final = os.geteuid() == 0
FIRST: Final = 300_000 if IS_ROOT else None
OPAQUE: Final = f"{'trusted' if IS_ROOT else 'user'}.overlay.opaque"


def unpack(tar: bytes, at: Path, most_entries: int = 1000) -> Path:
    """Unpack a tar below a new folder and return it."""
    at.mkdir()
    root = os.open(at, os.O_RDONLY)
    tree = LayerTree(root, FIRST)
    try:
        entries = TarEntries(io.BytesIO(tar), most_entries)
        for each in entries:
            tree.add(each, entries.data())
    finally:
        tree.close()
        os.close(root)
    return at


def link(name: str, target: str, **fields: Any) -> tarfile.TarInfo:  # noqa: ANN401 - of an entry
    made: tarfile.TarInfo = entry(name, tarfile.SYMTYPE, 0o777, linkname=target, **fields)
    return made


def hard(name: str, target: str) -> tarfile.TarInfo:
    made: tarfile.TarInfo = entry(name, tarfile.LNKTYPE, linkname=target)
    return made


def is_whiteout(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


REFUSED: Final[dict[str, tuple[Sequence[Any], str]]] = {
    "parent": ([file("a/../../etc/passwd")], "leads out of the layer"),
    "parent first": ([file("../x")], "leads out of the layer"),
    "absolute": ([file("/etc/passwd")], "absolute name"),
    "hard link out": ([hard("x", "../../etc/passwd")], "leads out of the layer"),
    "hard link absolute": ([hard("x", "/etc/passwd")], "absolute name"),
    "hard link to nothing": ([hard("x", "y")], "no file of this layer"),
    "hard link to itself": ([file("x"), hard("x", "x")], "no file of this layer"),
    "hard link to a folder": ([folder("d"), hard("x", "d")], "no file of this layer"),
    "hard link through a link": (
        [link("l", "/etc"), hard("x", "l/passwd")],
        "no file of this layer",
    ),
    "hard link to a whiteout": ([file(".wh.a"), hard("x", "a")], "no file of this layer"),
    "below a link": ([link("l", "/tmp"), file("l/x")], "below l, which is no folder"),
    "below a link out": ([link("l", "../../.."), file("l/x")], "below l, which is no folder"),
    "below a file": ([file("l"), file("l/x")], "below l, which is no folder"),
    "character device": ([entry("null", tarfile.CHRTYPE)], "is a character device"),
    "whiteout as a device": ([entry("x", tarfile.CHRTYPE, devmajor=0)], "is a character device"),
    "block device": ([entry("sda", tarfile.BLKTYPE)], "is a block device"),
    "fifo": ([entry("pipe", tarfile.FIFOTYPE)], "is a fifo"),
    "sparse": ([entry("x", tarfile.GNUTYPE_SPARSE)], "no layer may have"),
    "sparse of pax": ([entry("x", pax_headers={"GNU.sparse.major": "1"})], "sparse file"),
    "unknown type": ([entry("x", b"Z")], "no layer may have"),
    "too deep": ([file("d/" * MOST_DEPTH + "x")], "folders deep"),
    "long name": ([file("n" * 256)], "name of more than 255"),
    "long path": ([file("/".join(["n" * 50] * 90))], "one too long"),
    "empty link": ([link("l", "")], "names nothing"),
    "long link": ([link("l", "x" * 4096)], "too long a path"),
    "user": ([file("x", uid=IDS)], "the highest is 65535"),
    "group of a link": ([link("x", "y", gid=IDS)], "the highest is 65535"),
    "whiteout folder": ([folder(".wh.x")], "is a whiteout, but no file"),
    "whiteout of nothing": ([file("d/.wh.")], "whiteout of no name"),
    "whiteout of itself": ([file("d/.wh..")], "whiteout of no name"),
    "whiteout of the parent": ([file("d/.wh...")], "whiteout of no name"),
    "folder replaced": ([file("d/x"), file("d")], "in the layer twice"),
    "root is a file": ([hard(".", "x")], "root is no folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_layer_is_refused(case: str, tmp_path: Path) -> None:
    entries, words = REFUSED[case]
    with pytest.raises(LayerRefused, match=words):
        unpack(tar_of(*entries), tmp_path / "layer")
    assert [each.name for each in tmp_path.iterdir()] == ["layer"]


def test_a_refused_layer_has_written_nothing_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(LayerRefused):
        unpack(tar_of(link("l", str(outside)), file("l/x", b"evil")), tmp_path / "layer")
    assert list(outside.iterdir()) == []
    later = tar_of(link("l", str(outside)), folder("l"), file("l/x", b"fine"))
    layer = unpack(later, tmp_path / "another")
    assert (layer / "l/x").read_bytes() == b"fine"
    assert list(outside.iterdir()) == []


def test_messages_show_names_escaped(tmp_path: Path) -> None:
    with pytest.raises(LayerRefused) as refused:
        unpack(tar_of(file("../\n\x1b[31mé" + "x" * 300)), tmp_path / "layer")
    assert str(refused.value).isprintable()
    assert str(refused.value).isascii() is False  # the ellipsis alone
    assert "\\n\\x1b[31m\\xe9" in str(refused.value)
    assert len(str(refused.value)) < 200


def test_entries_are_counted_those_that_extend_too(tmp_path: Path) -> None:
    tar = tar_of(*(entry(f"{number}", pax_headers={"mtime": "1.5"}) for number in range(5)))
    unpack(tar, tmp_path / "most", most_entries=10)
    with pytest.raises(LayerRefused, match="more than the 9 entries"):
        unpack(tar, tmp_path / "more", most_entries=9)


def _without(tar: bytes, at: int, data: bytes) -> bytes:
    return tar[:at] + data + tar[at + len(data) :]


@pytest.mark.parametrize(
    ("tar", "words"),
    [
        (tar_of(file("x", b"y" * 600))[:700], "middle of an entry"),
        (tar_of(file("x", b"y" * 600))[:100], "middle of an entry"),
        (_without(tar_of(file("x")), 0, b"z"), "wrong checksum"),
        (_without(tar_of(file("x")), 148, b"\xff" * 8), "impossible checksum"),
        (_without(tar_of(file("x")), 148, b"99999999"), "no number"),
        (b"not a tar at all" * 64, "no number"),
    ],
)
def test_a_broken_tar_is_refused(tar: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(LayerRefused, match=words):
        unpack(tar, tmp_path / "layer")


def _header(kind: bytes, size: int, name: bytes = b"x", size_field: bytes = b"") -> bytes:
    """Return a header with a right checksum, whatever it says."""
    fields = [
        *(name.ljust(100, b"\0"), b"0000644\0", b"0000000\0", b"0000000\0"),
        *(size_field or b"%011o\0" % size, b"00000000000\0", b" " * 8, kind),
    ]
    block = b"".join(fields).ljust(257, b"\0") + b"ustar\x0000"
    block = block.ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


@pytest.mark.parametrize(
    ("tar", "words"),
    [
        (_header(b"x", 2 << 20), "extended header of 2097152 bytes"),
        (_header(b"L", 1 << 40, size_field=b"\x80" + (1 << 40).to_bytes(11, "big")), "extended"),
        (_header(b"0", 0, size_field=b"\xff" * 12), "impossible size"),
        (_header(b"0", 0, size_field=b"\x80\x7f" + b"\xff" * 10), "impossible size"),
        (_header(b"x", 10) + b"9 path=x\n\0".ljust(BLOCK, b"\0"), "cannot be read"),
        (_header(b"x", 4) + b"0 =\n".ljust(BLOCK, b"\0"), "cannot be read"),
        (_header(b"x", 9) + b"99 path=x".ljust(BLOCK, b"\0"), "cannot be read"),
        (_header(b"g", 10) + b"10 path=x\n".ljust(BLOCK, b"\0"), "changes all entries"),
        (_header(b"x", 10) + b"10 size=-\n".ljust(BLOCK, b"\0") + _header(b"0", 0), "impossible"),
        (_header(b"x", 11) + b"11 path=a\0\n".ljust(BLOCK, b"\0") + _header(b"0", 0), "zero byte"),
        (_header(b"x", 10) + b"10 path=x\n".ljust(BLOCK, b"\0"), "ends after an extended"),
        (_header(b"0", 5, name=b"dir/") + b"12345".ljust(BLOCK, b"\0"), "a folder by its name"),
        (_header(b"0", 0, name=b""), "without a name"),
    ],
)
def test_a_lying_header_is_refused(tar: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(LayerRefused, match=words):
        unpack(tar + bytes(2 * BLOCK), tmp_path / "layer")


def test_a_pax_record_gives_a_size_that_the_header_cannot(tmp_path: Path) -> None:
    extended = _header(b"x", 10) + b"10 size=3\n".ljust(BLOCK, b"\0")
    data = _header(b"0", 0, name=b"a") + b"one".ljust(BLOCK, b"\0") + _header(b"0", 0, name=b"b")
    layer = unpack(extended + data + bytes(BLOCK), tmp_path / "layer")
    assert (layer / "a").read_bytes() == b"one"
    assert (layer / "b").read_bytes() == b""


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_each_form_of_tar_is_read(form: int, tmp_path: Path) -> None:
    source = tmp_path / "source"
    long = "/".join(["folder" * 3] * (7 if form == tarfile.USTAR_FORMAT else 20))
    (source / long).mkdir(parents=True)
    (source / long / "file").write_bytes(b"x" * 1000)
    (source / long / "link").symlink_to("t" * 90)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form) as tar:
        tar.add(source, arcname=".")
    layer = unpack(target.getvalue(), tmp_path / "layer")
    assert (layer / long / "file").read_bytes() == b"x" * 1000
    assert str((layer / long / "link").readlink()) == "t" * 90


def test_a_tar_of_the_system_is_read(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "bin").mkdir(parents=True)
    (source / "bin" / "a").write_bytes(b"x" * 700)
    os.link(source / "bin" / "a", source / "bin" / "b")
    (source / "bin" / ("long" * 50)).write_bytes(b"y")
    made = subprocess.run(
        [require_tool("tar"), "-C", source, "-cf", "-", "."], check=True, capture_output=True
    )
    layer = unpack(made.stdout, tmp_path / "layer")
    assert (layer / "bin/a").samefile(layer / "bin/b")
    assert (layer / "bin" / ("long" * 50)).read_bytes() == b"y"


def test_links_are_kept_and_not_followed(tmp_path: Path) -> None:
    layer = unpack(
        tar_of(
            file("usr/bin/sh", b"shell"),
            link("bin", "usr/bin"),
            link("passwd", "/etc/passwd"),
            link("up", "../../../etc"),
            hard("usr/bin/ash", "./usr/bin/sh"),
            hard("again", "bin"),
        ),
        tmp_path / "layer",
    )
    assert str((layer / "bin").readlink()) == "usr/bin"
    assert str((layer / "passwd").readlink()) == "/etc/passwd"
    assert str((layer / "up").readlink()) == "../../../etc"
    assert (layer / "usr/bin/ash").samefile(layer / "usr/bin/sh")
    assert str((layer / "again").readlink()) == "usr/bin"


def test_a_later_entry_takes_the_place_of_an_earlier(tmp_path: Path) -> None:
    layer = unpack(
        tar_of(
            *(file("a", b"one"), file("a", b"two"), link("b", "/etc"), file("b", b"file")),
            *(folder("c"), file("c", b"file"), file("d", b"file"), folder("d"), file("d/x")),
            *(file("e", b"one"), hard("f", "e"), file("e", b"other")),
            *(folder("g", 0o700), file("g/x"), folder("g", 0o750)),
        ),
        tmp_path / "layer",
    )
    assert [(layer / name).read_bytes() for name in "abc"] == [b"two", b"file", b"file"]
    assert (layer / "d/x").exists()
    assert [(layer / name).read_bytes() for name in "ef"] == [b"other", b"one"]
    assert stat.S_IMODE((layer / "g").stat().st_mode) == 0o750
    assert (layer / "g/x").exists()


def test_modes_lose_what_changes_the_user(tmp_path: Path) -> None:
    layer = unpack(
        tar_of(
            *(folder(".", 0o751), folder("tmp", 0o1777), file("sudo", mode=0o6755)),
            *(folder("group", 0o2775), file("secret", mode=0o600), file("a/b/implied", mode=0o444)),
        ),
        tmp_path / "layer",
    )
    names = (".", "tmp", "sudo", "group", "secret", "a", "a/b")
    modes = {name: stat.S_IMODE((layer / name).stat().st_mode) for name in names}
    assert modes == {
        ".": 0o751,
        "tmp": 0o1777,
        "sudo": 0o755,
        "group": 0o775,
        "secret": 0o600,
        "a": 0o755,
        "a/b": 0o755,
    }


@pytest.mark.skipif(not IS_ROOT, reason="only root gives files to others")
def test_ids_begin_at_the_first_for_instances(tmp_path: Path) -> None:
    assert FIRST is not None
    layer = unpack(
        tar_of(
            *(folder(".", uid=3, gid=4), file("a", uid=0, gid=0), file("b", uid=1000, gid=IDS - 1)),
            *(link("c", "/etc/passwd", uid=7, gid=8), folder("d", uid=9, gid=10), file("e/f")),
        ),
        tmp_path / "layer",
    )
    names = (".", "a", "b", "c", "d", "e")
    found = {name: (layer / name).lstat() for name in names}
    assert {name: (each.st_uid - FIRST, each.st_gid - FIRST) for name, each in found.items()} == {
        ".": (3, 4),
        "a": (0, 0),
        "b": (1000, IDS - 1),
        "c": (7, 8),
        "d": (9, 10),
        "e": (0, 0),
    }
    assert Path("/etc/passwd").stat().st_uid == 0


def test_extended_attributes_are_dropped(tmp_path: Path) -> None:
    attributes = {
        "SCHILY.xattr.security.capability": "\x01\x00",
        "SCHILY.xattr.trusted.overlay.opaque": "y",
        "SCHILY.xattr.user.overlay.redirect": "/etc",
        "LIBARCHIVE.xattr.user.x": "eA==",
        "SCHILY.acl.access": "user::rwx",
    }
    layer = unpack(
        tar_of(entry("a", pax_headers=attributes), folder("d", pax_headers=attributes)),
        tmp_path / "layer",
    )
    assert os.listxattr(layer / "a") == os.listxattr(layer / "d") == []


def test_times_are_kept_where_they_can_be(tmp_path: Path) -> None:
    layer = unpack(
        tar_of(
            *(file("a", mtime=1_600_000_000), file("b", mtime=1_600_000_000.75)),
            *(file("c", mtime=-5), entry("d", pax_headers={"mtime": "9" * 18})),
        ),
        tmp_path / "layer",
    )
    found = [int((layer / name).stat().st_mtime) for name in "abcd"]
    assert found == [1_600_000_000, 1_600_000_000, 0, 1 << 33]


def test_whiteouts_hide_what_lies_below_and_nothing_of_their_own_layer(tmp_path: Path) -> None:
    layer = unpack(
        tar_of(
            *(file("d/.wh.gone"), file("d/.wh.late"), file("d/late", b"own"), file("d/early")),
            *(file("d/.wh.early"), file("d/.wh.folder"), folder("d/folder"), file("d/folder/x")),
            *(folder("d/first"), file("d/first/x"), file("d/.wh.first")),
            *(file("d/.wh.implied"), file("d/implied/x"), file("o/.wh..wh..opq"), file("o/x")),
            *(file("p/y"), file("p/.wh..wh..opq"), file(".wh..wh.plnk"), file("o/.wh..wh.aufs")),
        ),
        tmp_path / "layer",
    )
    assert is_whiteout(layer / "d/gone")
    assert (layer / "d/late").read_bytes() == b"own"
    for name in ("d/early", "d/folder/x", "d/first/x", "d/implied/x", "o/x", "p/y"):
        assert (layer / name).is_file(), name
    assert sorted(each.name for each in layer.iterdir()) == ["d", "o", "p"]
    assert [each.name for each in (layer / "o").iterdir()] == ["x"]
    hiding = ("d/folder", "d/first", "d/implied", "o", "p")
    assert [os.getxattr(layer / name, OPAQUE) for name in hiding] == [b"y"] * 5
    assert os.listxattr(layer / "d") == []


@pytest.fixture
def overlaid(tmp_path: Path) -> Path:
    """Make two layers of which the upper one hides parts of the lower one."""
    lower = tar_of(
        *(file("d/gone"), file("d/stays"), file("o/gone"), file("t/gone"), file("replaced/gone")),
        *(file("link/gone"), file("a")),
    )
    upper = tar_of(
        *(file("d/.wh.gone"), file("o/.wh..wh..opq"), file("o/new"), file(".wh.t")),
        *(file(".wh.replaced"), file("replaced/new"), link("link", "a")),
    )
    unpack(lower, tmp_path / "lower")
    unpack(upper, tmp_path / "upper")
    (tmp_path / "merged").mkdir()
    return tmp_path


def test_overlayfs_shows_the_layers_as_the_image_has_them(overlaid: Path) -> None:
    options = f"ro,lowerdir={overlaid}/upper:{overlaid}/lower{'' if IS_ROOT else ',userxattr'}"
    own = ("--mount",) if IS_ROOT else ("--mount", "--user", "--map-root-user")
    script = f"mount -t overlay overlay -o {options} merged && cd merged && find . ! -type d"
    shown = subprocess.run(
        [require_tool("unshare"), *own, "sh", "-c", script],
        check=True,
        capture_output=True,
        text=True,
        cwd=overlaid,
    )
    assert sorted(shown.stdout.split()) == [
        *("./a", "./d/stays", "./link", "./o/new", "./replaced/new"),
    ]
