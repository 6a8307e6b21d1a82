"""Bytes that can be made again: seeded files, a tree with odd names, large bodies without storage."""

import hashlib
import io
import random
from pathlib import Path

MIB = 1 << 20

# Every character that some client or server has quoted, decoded or cut once too often.
ODD_NAMES = [
    "with space.txt", "plus+plus", "percent%2Fslash", "per%cent", "per%25cent", "equals=and&amp;", "lt<gt>",
    "quote'double\"", "semi;colon,comma", "hash#", "question?mark=1", "back\\slash", "tilde~", "star*",
    " (test)+", "colon:at@", "dollar$", "bracket[1]{2}", "caret^pipe|", "back`tick", ".hidden", "dots..",
    "trailing space ", "-dash", "--force", "\u00fcn\u00efc\u00f8d\u00e9", "e\u0301 decomposed", "\u65e5\u672c\u8a9e",
    "\U0001f600", "\uff21 wide", "order.a", "order/a", "order0a", "Order", "deep/er/and/deep/er",
]
# A key of 1,024 bytes whose parts fit a file system.
LONGEST = "/".join(["k" * 203] * 5) + "/end!"
# Keys no file system takes.
KEYS_ONLY = ["double//slash", "//leading", "/", "trailing/", "new\nline", "tab\tstop", "x" * 1024]


def sizes(generator: random.Random):
    """The sizes where servers change their ways, then a spread over 0 B to 1 MiB."""
    yield from (0, 1, 4095, 4096, 4097, 16383, 16384, 16385, 65536, 262144, MIB - 1, MIB)
    while True:
        yield int(2 ** generator.uniform(0, 20))


def tree(place: Path, count: int, seed: int = 1) -> dict[str, Path]:
    """Makes `count` files below `place`; key to path."""
    generator = random.Random(seed)
    size = sizes(generator)
    names = ODD_NAMES + [LONGEST]
    names += [f"dir{index % 17:02}/sub{index % 5}/file{index:05}" for index in range(count - len(names))]
    files = {}
    for name in names:
        files[name] = place / name
        files[name].parent.mkdir(parents=True, exist_ok=True)
        files[name].write_bytes(generator.randbytes(next(size)))
    assert len(files) == count and len(LONGEST.encode()) == 1024
    return files


def same_tree(left: Path, right: Path) -> None:
    """Both directories hold the same files with the same bytes."""
    files = [sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
             for place in (left, right)]
    missing, more = set(files[0]) - set(files[1]), set(files[1]) - set(files[0])
    assert not missing and not more, f"missing {sorted(missing)[:5]}, too many {sorted(more)[:5]}"
    for name in files[0]:
        assert (left / name).read_bytes() == (right / name).read_bytes(), f"{name!r} differs"


class Body(io.RawIOBase):
    """A seekable body of any size: one random MiB after the other, each with its number in front."""

    def __init__(self, size: int, seed: int = 7):
        self.size = size
        self.position = 0
        self.block = random.Random(seed).randbytes(MIB - 8)

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.position

    def seek(self, offset, whence=io.SEEK_SET):
        self.position = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence] + offset
        return self.position

    def readinto(self, buffer):
        data = self.range(self.position, min(len(buffer), self.size - self.position))
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)

    def range(self, offset: int, length: int) -> bytes:
        first, skip = divmod(offset, MIB)
        blocks = range(first, (offset + max(length, 0) + MIB - 1) // MIB)
        data = b"".join(number.to_bytes(8, "big") + self.block for number in blocks)
        return data[skip : skip + max(length, 0)]

    def digest(self) -> str:
        digest = hashlib.sha256()
        for offset in range(0, self.size, MIB):
            digest.update(self.range(offset, min(MIB, self.size - offset)))
        return digest.hexdigest()

    def write_to(self, path: Path) -> None:
        with path.open("wb") as file:
            for offset in range(0, self.size, MIB):
                file.write(self.range(offset, min(MIB, self.size - offset)))
