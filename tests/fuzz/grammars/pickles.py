"""Files of torch.save: a pickle written opcode by opcode, with hostile ones in between, and its storages, in a zip."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

from fuzz.dice import EDGES, Dice, product
from fuzz.grammars.zips import zipped

_STORAGES: Final = {
    "FloatStorage": 4, "DoubleStorage": 8, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8, "IntStorage": 4,
    "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "ComplexFloatStorage": 8, "ComplexDoubleStorage": 16,
}  # fmt: skip
_DTYPES: Final = {"float8_e4m3fn": 1, "uint16": 2, "uint32": 4, "uint64": 8, "float32": 4}  # of _rebuild_tensor_v3
_NAMES: Final = (
    ("os", "system"), ("builtins", "eval"), ("builtins", "getattr"), ("torch", "load"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("collections", "OrderedDict"), ("torch", "FloatStorage"), ("torch.nn.parameter", "Parameter"), ("torch", "Size"),
    ("numpy.core.multiarray", "_reconstruct"), ("torch.storage", "TypedStorage"), ("torch", "float32"),
    ("torch", "device"),
    ("_codecs", "encode"), ("builtins", "set"), ("collections", "Counter"), ("torch.serialization", "_get_layout"),
    ("torch._utils", "_rebuild_sparse_tensor"), ("torch._tensor", "_rebuild_from_type_v2"),
    ("collections", "defaultdict"),
    ("torcheer.modelfiles.torch_pickle", "StoredTensor"), ("copyreg", "_reconstructor"), ("builtins", "bytearray"),
    ("torch._utils", "_rebuild_parameter"), ("torch", "Tensor"), ("torch", "per_tensor_affine"), ("builtins", "object"),
)  # fmt: skip


def write_file(dice: Dice, folder: Path) -> Path:
    """Write a file with a state_dict, a checkpoint, or any other tree of values."""
    pickle = _Pickle(dice)
    root = pickle.state_dict() if dice.random() < 0.5 else pickle.value(0)
    protocol = dice.either(2, lambda: dice.choice((0, 1, 3, 4, 5, 200)))
    program = b"\x80" + bytes([protocol]) + root + dice.either(b".", lambda: b"", lambda: b"..", lambda: b"0.")
    files = [("archive/data.pkl", dice.field(program)), ("archive/byteorder", dice.either(b"little", lambda: b"big"))]
    files += [(f"archive/data/{key}", dice.field(data)) for key, data in pickle.storages.items()]
    files.append(("archive/version", b"3\n"))
    path = folder / "model.pt"
    path.write_bytes(zipped(dice, files))
    return path


class _Pickle:
    """Writes values as opcodes; keeps the storages of their tensors, and what the memo holds."""

    def __init__(self, dice: Dice) -> None:
        self._dice, self.storages = dice, dict[str, bytes]()
        self._memo = 0
        self._known: list[int] = []  # numbers of texts in the memo

    def state_dict(self) -> bytes:
        """An OrderedDict of tensors, with the metadata that torch keeps on it."""
        names = sorted({self._dice.name() for _ in range(self._dice.randint(0, 4))})
        items = b"".join(self.text(name) + self.tensor() for name in names)
        empty = self._called(("collections", "OrderedDict"), b")")
        built = b"}" + self.text("_metadata") + empty + b"s" + b"b" if self._dice.random() < 0.5 else b""
        return empty + self._put() + b"(" + items + b"u" + built

    def value(self, depth: int) -> bytes:
        """Any value."""
        dice = self._dice
        if dice.turns():
            return self.hostile(depth)
        kinds = [
            self.tensor,
            self.number,
            lambda: self.text(dice.name()),
            lambda: dice.choice((b"N", b"\x88", b"\x89")),
        ]
        if depth < 4:
            kinds += [
                lambda: self.dict(depth),
                lambda: self.dict(depth),
                lambda: self.list(depth),
                lambda: self.tuple(depth),
            ]
        return dice.choice(kinds)()

    def dict(self, depth: int) -> bytes:
        """A dict, filled at once or item by item."""
        dice = self._dice
        keys = [dice.choice((lambda: self.text(dice.name()), self.number)) for _ in range(dice.randint(0, 4))]
        items = [key() + self.value(depth + 1) for key in keys]
        if dice.random() < 0.3:
            return b"}" + self._put() + b"".join(item + b"s" for item in items)
        return b"}" + self._put() + b"(" + b"".join(items) + b"u"

    def list(self, depth: int) -> bytes:
        """A list."""
        items = [self.value(depth + 1) for _ in range(self._dice.randint(0, 4))]
        if self._dice.random() < 0.3:
            return b"]" + self._put() + b"".join(item + b"a" for item in items)
        return b"]" + self._put() + b"(" + b"".join(items) + b"e"

    def tuple(self, depth: int) -> bytes:
        """A tuple."""
        items = [self.value(depth + 1) for _ in range(self._dice.randint(0, 5))]
        if len(items) <= 3 and self._dice.random() < 0.7:
            return b"".join(items) + (b")", b"\x85", b"\x86", b"\x87")[len(items)]
        return b"(" + b"".join(items) + b"t"

    def number(self) -> bytes:
        """A whole or real number."""
        return self._number(self._dice.field(self._dice.choice((0, 1, 300, 70_000, -5, 2**40)))) if (
            self._dice.random() < 0.7
        ) else b"G" + struct.pack(">d", self._dice.field(self._dice.uniform(-2, 2)))  # fmt: skip

    def _number(self, number: int) -> bytes:
        if 0 <= number < 256:
            return b"K" + bytes([number])
        if 0 <= number < 2**16:
            return b"M" + struct.pack("<H", number)
        if -(2**31) <= number < 2**31:
            return b"J" + struct.pack("<i", number)
        data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([self._dice.field(len(data)) % 256]) + data

    def text(self, text: str) -> bytes:
        """A text, now and then one from the memo."""
        data = self._dice.field(text).encode("utf-8", "surrogatepass")
        written = b"X" + struct.pack("<I", self._dice.field(len(data)) % 2**32) + data + self._put()
        self._known.append(self._memo - 1)
        return written

    def _put(self) -> bytes:
        """Remember the last value."""
        index = self._dice.field(self._memo) % 2**32
        self._memo += 1
        return b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index)

    def _called(self, name: tuple[str, str], arguments: bytes) -> bytes:
        module, word = self._dice.either(name, lambda: self._dice.choice(_NAMES))
        return f"c{module}\n{word}\n".encode() + arguments + self._dice.either(b"R", lambda: b"\x81", lambda: b"b")

    # -- tensors -----------------------------------------------------------------------------------------------------

    def tensor(self) -> bytes:
        """A tensor on a storage, of its own or of another tensor."""
        dice = self._dice
        shape = dice.shape()
        if dice.random() < 0.1:
            return self._typed_tensor(shape)
        kind = dice.choice(list(_STORAGES))
        strides, count = self._strides(shape)
        offset = dice.one_of(0, 0, 2)
        storage = self._storage(kind, offset + count, _STORAGES[kind])
        parts = storage + self._number(dice.field(offset)) + self._sizes(shape) + self._sizes(strides)
        tensor = self._called(("torch._utils", "_rebuild_tensor_v2"), b"(" + parts + b"\x89" + self._hooks() + b"t")
        if dice.random() < 0.15:
            tensor = self._called(
                ("torch._utils", "_rebuild_parameter"), b"(" + tensor + b"\x89" + self._hooks() + b"t"
            )
        return tensor

    def _typed_tensor(self, shape: tuple[int, ...]) -> bytes:
        dice = self._dice
        dtype = dice.choice(list(_DTYPES))
        strides, count = self._strides(shape)
        storage = self._storage("UntypedStorage", count * _DTYPES[dtype], 1)
        name = f"ctorch\n{dice.either(dtype, lambda: dice.choice(('qint8', 'bits16', 'load', 'x')))}\n".encode()
        parts = storage + self._number(0) + self._sizes(shape) + self._sizes(strides) + b"\x89" + self._hooks() + name
        return self._called(("torch._utils", "_rebuild_tensor_v3"), b"(" + parts + b"t")

    def _strides(self, shape: tuple[int, ...]) -> tuple[list[int], int]:
        """Strides of rows, of a transposed tensor, or of an expanded one; and how many numbers the storage has."""
        strides = [product(shape[axis + 1 :]) for axis in range(len(shape))]
        kind = self._dice.random()
        if kind < 0.2 and len(shape) > 1:
            columns = [product(shape[:axis]) for axis in range(len(shape))]
            return columns, product(shape)
        if kind < 0.3 and shape:
            strides[0] = 0
            return strides, product(shape[1:]) if product(shape) else 1
        return strides, product(shape)

    def _sizes(self, sizes: Any) -> bytes:
        return b"(" + b"".join(self._number(size) for size in self._dice.field(list(sizes))) + b"t"

    def _hooks(self) -> bytes:
        return self._called(("collections", "OrderedDict"), b")")

    def _storage(self, kind: str, count: int, width: int) -> bytes:
        dice = self._dice
        key = str(len(self.storages))
        data = dice.randbytes(count * width)
        self.storages[key] = data
        module = "torch.storage" if kind == "UntypedStorage" else "torch"
        named = dice.either(kind, lambda: dice.choice(list(_STORAGES)), lambda: "BoolStorage", lambda: "QInt8Storage")
        name = f"c{module}\n{named}\n".encode()
        texts = [
            b"X" + struct.pack("<I", len(text)) + text
            for text in (b"storage", dice.field(key).encode("utf-8", "ignore"), b"cpu")
        ]
        return b"(" + texts[0] + name + texts[1] + texts[2] + self._number(dice.field(count)) + b"tQ"

    # -- what no file of torch has -----------------------------------------------------------------------------------

    def hostile(self, depth: int) -> bytes:
        """Opcodes that torch does not write, or not here."""
        dice = self._dice
        edge = dice.choice(EDGES)
        return dice.choice((
            lambda: b"h" + bytes([dice.randrange(256)]), lambda: b"j" + struct.pack("<I", edge % 2**32),
            lambda: b"}" + self.tuple(depth + 1) + b"Ns", lambda: b"}" + self.list(depth + 1) + b"Ns",
            lambda: b"}" + self.tensor() + b"Ns", lambda: b"\x94", lambda: b"0", lambda: b"2", lambda: b"1",
            lambda: b"(",
            lambda: self.value(depth + 1) + b"b", lambda: self._called(dice.choice(_NAMES), self.tuple(depth + 1)),
            lambda: "c{}\n{}\n".format(*dice.choice(_NAMES)).encode(),
            lambda: b"\x8b" + struct.pack("<i", edge % 2**31),
            lambda: b"\x8d" + struct.pack("<Q", edge % 2**64), lambda: b"B" + struct.pack("<I", edge % 2**32) + b"ab",
            lambda: b"U\x03abc", lambda: b"C\x02\xff\xfe", lambda: b"\x8c\x02ab",
            lambda: b"\x8f" + b"(" + b"K\x01" + b"\x90",
            lambda: b"]" + self._put() + b"h" + bytes([(self._memo - 1) % 256]) + b"a",  # a list in itself
            lambda: b"}" + self._put() + b"K\x01h" + bytes([(self._memo - 1) % 256]) + b"s",
            lambda: self._shared_tuples(), lambda: b"K\x01" + b"\x85" * 3000, lambda: b"]" * 2000 + b"a" * 1999,
            lambda: b"I12\n", lambda: b"S'abc'\n", lambda: b"F1.5\n", lambda: b"L5L\n", lambda: b"i" + b"os\nsystem\n",
            lambda: b"\x82\x01", lambda: b"P0\n", lambda: b"\x96" + bytes(8), lambda: b"\x97",
            lambda: bytes([dice.randrange(256)]),
            lambda: b"\x80\x04\x95" + struct.pack("<Q", edge % 2**64),
            lambda: b"X\x02\0\0\0torch" + b"X\x04\0\0\0load\x93",
            lambda: b"G" + struct.pack(">d", dice.changed(1.0)), lambda: b"(" + self.value(depth + 1) + b"Q",
        ))()  # fmt: skip

    def _shared_tuples(self) -> bytes:
        """A tuple of a tuple of …, each twice the one before: to hash or to print it takes for ever."""
        levels = self._dice.choice((4, 30))
        program = b"K\x01\x85"
        for _ in range(levels):
            program += b"r" + struct.pack("<I", self._memo) + b"j" + struct.pack("<I", self._memo) + b"\x86"
            self._memo += 1
        return b"}" + program + b"Ns" if self._dice.random() < 0.5 else program
