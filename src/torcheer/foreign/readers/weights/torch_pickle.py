"""The pickle of a `torch.save` file as plain data: an interpreter of the few opcodes that it is written in.

A pickle is a program, and Python's own interpreter of it calls what it names and sets what it likes on what comes back.
Here a name is never looked up: it is a `Name`, and calling one gives what the table `_CALLS` says, or ends the reading.
What an opcode costs is bounded: nothing is copied but texts, no container is hashed, and there is an end to steps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.foreign.readers.budget import Budget
from torcheer.terminal import short_repr
from torcheer.vocabulary.dtypes import DTYPES

_STORAGES: Final = {storage: row.name for row in DTYPES.values() for storage in row.storages.split()}
_SCHEMES: Final = ("per_tensor_affine", "per_channel_affine", "per_channel_affine_float_qparams")  # of quantising
_FACTORIES: Final = ("dict", "list", "int", "float")  # of a defaultdict
_MOST_DIGITS_BYTES: Final = 255
_MOST_AXES: Final = 32
_DEEPEST_KEY: Final = 2


class Name(NamedTuple):
    """A class or function that the pickle names; it is a text, and stays one."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Storage(NamedTuple):
    """Numbers of one file in the zip."""

    key: str
    type: str


class StoredTensor(NamedTuple):
    """A tensor as the pickle describes it: nothing of it has been checked against its storage."""

    storage: Storage
    type: str
    offset: int  # in numbers, as the strides are
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Note(NamedTuple):
    """What is known of a value that is not read: a sparse tensor, a device."""

    text: str


class _Mark:
    """Where the arguments of an opcode begin on the stack."""


_MARK: Final = _Mark()
_SCALARS: Final = (str, bytes, int, float, bool, type(None), Name, Note)


def read_pickle(data: bytes, budget: Budget) -> Any:
    """Return the value that a pickle makes: dicts, lists, tuples, texts and numbers, tensors, notes.

    Raises `BadArgument` where it names something that could run code, `ArchiveDamaged` where it is no such pickle.
    """
    try:
        return _Interpreter(data, budget).run()
    except _Refused as refused:
        raise BadArgument(
            f"it holds more than tensors: it names {short_repr(str(refused))}, which could run code and is not "
            f"looked up. Load it where you trust it, and save its state_dict as .safetensors"
        ) from None
    except (_Damaged, struct.error, UnicodeDecodeError, IndexError, KeyError) as error:
        raise ArchiveDamaged(f"its pickle cannot be read: {str(error)[:200]}") from None


class _Refused(Exception):
    """A name that is not in the table."""


class _Damaged(Exception):
    """What no pickle of torch's has in it."""


class _Interpreter:
    """The stack, the memo and the place of one reading."""

    def __init__(self, data: bytes, budget: Budget) -> None:
        self._data, self._at, self._budget = data, 0, budget
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Run to the opcode STOP and return what it leaves."""
        while True:
            self._budget.spend("steps", 1000, "its pickle")
            for _ in range(1000):
                code = self._take(1)[0]
                if code == _STOP:
                    return self._pop()
                if (step := _OPCODES.get(code)) is None:
                    raise _Damaged(f"opcode {code:#04x} at byte {self._at - 1} is none that torch.save writes")
                step(self)

    # -- the data --------------------------------------------------------------------------------------------------

    def _take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if len(part) < count:
            raise _Damaged(f"it ends at byte {len(self._data)}")
        self._at += count
        return part

    def number(self, format: str) -> Any:
        """The next number, of a format of `struct`."""
        return struct.unpack(format, self._take(struct.calcsize(format)))[0]

    def line(self) -> str:
        """The text up to the next end of a line."""
        end = self._data.find(b"\n", self._at, self._at + 1000)
        if end < 0:
            raise _Damaged(f"the name at byte {self._at} has no end")
        text, self._at = self._data[self._at : end], end + 1
        return text.decode()

    def push_text(self, format: str) -> None:
        """A text with its length before it."""
        self.push(self._take(self.number(format)).decode("utf-8", "surrogatepass"))

    def push_bytes(self, format: str) -> None:
        """Bytes with their length before them."""
        self.push(self._take(self.number(format)))

    def push_integer(self, format: str) -> None:
        """A whole number of any size, with its bytes counted before it."""
        count = self.number(format)
        if not 0 <= count <= _MOST_DIGITS_BYTES:
            raise _Damaged(f"a number in it has {count:,} bytes")
        self.push(int.from_bytes(self._take(count), "little", signed=True))

    # -- stack and memo ----------------------------------------------------------------------------------------------

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self._stack.append(value)

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise _Damaged(f"a value is missing at byte {self._at}")
        return value

    def _top(self, kind: type) -> Any:
        value = self._stack[-1]
        if type(value) is not kind:
            raise _Damaged(f"there is no {kind.__name__} at byte {self._at}")
        return value

    def _since_mark(self) -> list[Any]:
        values = []
        while (value := self._stack.pop()) is not _MARK:
            values.append(value)
        values.reverse()
        return values

    def push_tuple(self, count: int) -> None:
        """A tuple of the last values."""
        values = [self._pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def push_marked_tuple(self) -> None:
        """A tuple of the values since the mark."""
        self.push(tuple(self._since_mark()))

    def put(self, index: int) -> None:
        """Remember the last value."""
        if self._stack[-1] is _MARK:
            raise _Damaged(f"a mark is remembered at byte {self._at}")
        self._memo[index] = self._stack[-1]

    def memoize(self) -> None:
        """Remember the last value under the next number."""
        self.put(len(self._memo))

    def get(self, index: int) -> None:
        """Put a remembered value on the stack."""
        self.push(self._memo[index])

    # -- containers --------------------------------------------------------------------------------------------------

    def append(self) -> None:
        """Add the last value to a list."""
        value = self._pop()
        self._top(list).append(value)

    def append_all(self) -> None:
        """Add the values since the mark to a list; of a set, too, which is one here."""
        values = self._since_mark()
        self._top(list).extend(values)

    def set_item(self) -> None:
        """Add a key and its value to a dict."""
        value, key = self._pop(), self._pop()
        self._top(dict)[_checked_key(key)] = value

    def set_items(self) -> None:
        """Add the keys and values since the mark to a dict."""
        values = self._since_mark()
        items = self._top(dict)
        if len(values) % 2:
            raise _Damaged(f"a key has no value at byte {self._at}")
        for key, value in zip(values[::2], values[1::2]):
            items[_checked_key(key)] = value

    # -- names and calls ---------------------------------------------------------------------------------------------

    def name(self) -> None:
        """A name, as protocol 2 writes it."""
        self.push(_checked_name(Name(self.line(), self.line())))

    def name_of_texts(self) -> None:
        """A name of two texts on the stack."""
        name, module = self._pop(), self._pop()
        if type(module) is not str or type(name) is not str:
            raise _Damaged(f"a name at byte {self._at} is no text")
        self.push(_checked_name(Name(module, name)))

    def call(self) -> None:
        """What the table says of calling a name with a tuple of arguments."""
        arguments, name = self._pop(), self._pop()
        if type(name) is not Name or type(arguments) is not tuple:
            raise _Damaged(f"what is called at byte {self._at} is no name")
        self.push(_called(name, arguments))

    def build(self) -> None:
        """Leave out the state of a dict: `_metadata` of a state_dict, which alone has one."""
        self._pop()
        self._top(dict)

    def storage(self) -> None:
        """A storage, by what torch writes of it: ("storage", its class, its file, where it was, its length)."""
        match self._pop():
            case ("storage", Name() as kind, str(key), *_) if kind.name in _STORAGES:
                self.push(Storage(key, _STORAGES[kind.name]))
            case _:
                raise _Damaged(f"a storage at byte {self._at} is described otherwise than torch does")


def _checked_key(key: Any, depth: int = 0) -> Any:
    """A key of a dict: a text, a number, or a tuple of them; to hash what is deeper could take for ever."""
    if type(key) is tuple and depth < _DEEPEST_KEY and len(key) <= _MOST_AXES:
        for part in key:
            _checked_key(part, depth + 1)
    elif type(key) not in _SCALARS and not isinstance(key, Storage):
        raise _Damaged(f"a key is a {type(key).__name__}")
    return key


# -- what a name stands for --------------------------------------------------------------------------------------------


def _checked_name(name: Name) -> Name:
    is_torchs = name.module == "torch" and (name.name in _STORAGES or name.name in _SCHEMES or _dtype(name) != "")
    is_factory = name.module in ("builtins", "__builtin__") and name.name in _FACTORIES
    if name not in _CALLS and not is_torchs and not is_factory:
        raise _Refused(str(name))
    return name


def _called(name: Name, arguments: tuple[Any, ...]) -> Any:
    if name not in _CALLS:
        raise _Damaged(f"{name} is called")
    try:
        return _CALLS[name](*arguments)
    except (TypeError, ValueError, AttributeError):
        raise _Damaged(f"{name} is called with other arguments than torch gives it") from None


def _dtype(name: Any) -> str:
    """The type that a name of torch's is, as ours is called; "" where it is none."""
    is_dtype = type(name) is Name and name.module == "torch" and name.name in DTYPES
    return str(name.name) if is_dtype else ""


def _lengths(numbers: Any) -> tuple[int, ...]:
    if type(numbers) not in (tuple, list) or len(numbers) > _MOST_AXES:
        raise _Damaged("a shape in it is no list of at most 32 numbers")
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise _Damaged("a shape in it has something else than numbers")
    return tuple(numbers)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any, type: str = "") -> StoredTensor:
    if not isinstance(storage, Storage):
        raise _Damaged("a tensor in it has no storage")
    (checked,), lengths, steps = _lengths([offset]), _lengths(shape), _lengths(strides)
    if len(lengths) != len(steps):
        raise _Damaged("a tensor in it has a shape and strides that do not fit")
    return StoredTensor(storage, type or storage.type, checked, lengths, steps)


def _typed_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any, *_: Any
) -> Any:
    """A tensor of a type that has no storage class of its own."""
    type = _dtype(dtype)
    return _tensor(storage, offset, shape, strides, type=type) if type else Note(f"a tensor of type {_word(dtype)}")


def _first(value: Any, *_: Any) -> Any:
    """What a parameter is made of."""
    return value


def _subclass(rebuild: Any, kind: Any, arguments: Any, *_: Any) -> Any:
    """A tensor with attributes, or of a class of its own: without them."""
    if type(rebuild) is not Name or rebuild.name == "_rebuild_from_type_v2":
        raise _Damaged("a tensor in it is made of a tensor with attributes")
    return _called(rebuild, arguments)


def _sparse(layout: Any, parts: Any, *_: Any) -> Note:
    return Note("a sparse tensor")


def _device(kind: Any, index: Any = None) -> Note:
    return Note(_word(kind) if index is None else f"{_word(kind)}:{_lengths([index])[0]}")


def _word(value: Any) -> str:
    """A short text; the text of a container might have no end."""
    if type(value) not in (str, Name) or len(text := str(value)) > 100:
        raise _Damaged("a word is missing in it")
    return text


def _empty(*given: Any) -> dict[Any, Any]:
    if any(type(value) is not Name for value in given):  # filled afterwards; to copy a list each time takes for ever
        raise _Damaged("a dict in it is made of another object")
    return {}


def _members(values: Any = ()) -> Any:
    """A set, as the list of its members."""
    if type(values) is not list:
        raise _Damaged("a set in it is made of no list")
    return values


def _encoded(text: str, encoding: str) -> bytes:
    """Bytes, which protocol 2 writes as a text."""
    if encoding != "latin1":
        raise _Damaged("bytes in it are encoded otherwise than pickle does")
    return text.encode(encoding)


_CALLS: Final[dict[Name, Callable[..., Any]]] = {
    Name("torch._utils", "_rebuild_tensor"): _tensor,
    Name("torch._utils", "_rebuild_tensor_v2"): _tensor,
    Name("torch._utils", "_rebuild_tensor_v3"): _typed_tensor,
    Name("torch._utils", "_rebuild_parameter"): _first,
    Name("torch._utils", "_rebuild_parameter_with_state"): _first,
    Name("torch._tensor", "_rebuild_from_type_v2"): _subclass,
    Name("torch.nn.parameter", "Parameter"): _first,
    Name("torch.nn.parameter", "Buffer"): _first,
    Name("torch", "Tensor"): _first,
    Name("torch._utils", "_rebuild_sparse_tensor"): _sparse,
    Name("torch._utils", "_rebuild_qtensor"): lambda *_: Note("a quantised tensor"),
    Name("torch._utils", "_rebuild_nested_tensor"): lambda *_: Note("a nested tensor"),
    Name("torch._utils", "_rebuild_meta_tensor_no_storage"): lambda *_: Note("a tensor without numbers (meta)"),
    Name("torch", "Size"): lambda numbers=(): _lengths(numbers),
    Name("torch", "device"): _device,
    Name("torch.serialization", "_get_layout"): lambda name: Note(_word(name)),
    Name("torch.storage", "UntypedStorage"): _first,
    Name("collections", "OrderedDict"): _empty,
    Name("collections", "defaultdict"): _empty,
    Name("builtins", "set"): _members,
    Name("__builtin__", "set"): _members,
    Name("_codecs", "encode"): _encoded,
}


# -- the opcodes -------------------------------------------------------------------------------------------------------


def _nothing(interpreter: _Interpreter) -> None:
    pass


_STOP: Final = ord(".")
_OPCODES: Final[dict[int, Callable[[_Interpreter], None]]] = {
    ord(code): step
    for code, step in {
        "\x80": lambda i: i.number("B") and None,  # PROTO
        "\x95": lambda i: i.number("<Q") and None,  # FRAME
        "(": lambda i: i.push(_MARK),
        "N": lambda i: i.push(None), "\x88": lambda i: i.push(True), "\x89": lambda i: i.push(False),
        "J": lambda i: i.push(i.number("<i")), "K": lambda i: i.push(i.number("B")),
        "M": lambda i: i.push(i.number("<H")),
        "\x8a": lambda i: i.push_integer("B"), "\x8b": lambda i: i.push_integer("<i"),
        "G": lambda i: i.push(i.number(">d")),
        "X": lambda i: i.push_text("<I"), "\x8c": lambda i: i.push_text("B"), "\x8d": lambda i: i.push_text("<Q"),
        "U": lambda i: i.push_text("B"),
        "B": lambda i: i.push_bytes("<I"), "C": lambda i: i.push_bytes("B"), "\x8e": lambda i: i.push_bytes("<Q"),
        ")": lambda i: i.push_tuple(0), "\x85": lambda i: i.push_tuple(1), "\x86": lambda i: i.push_tuple(2),
        "\x87": lambda i: i.push_tuple(3), "t": _Interpreter.push_marked_tuple,
        "]": lambda i: i.push([]), "}": lambda i: i.push({}), "\x8f": lambda i: i.push([]),
        "a": _Interpreter.append, "e": _Interpreter.append_all, "\x90": _Interpreter.append_all,
        "s": _Interpreter.set_item, "u": _Interpreter.set_items,
        "q": lambda i: i.put(i.number("B")), "r": lambda i: i.put(i.number("<I")), "\x94": _Interpreter.memoize,
        "h": lambda i: i.get(i.number("B")), "j": lambda i: i.get(i.number("<I")),
        "c": _Interpreter.name, "\x93": _Interpreter.name_of_texts,
        "R": _Interpreter.call, "\x81": _Interpreter.call, "b": _Interpreter.build, "Q": _Interpreter.storage,
    }.items()
}  # fmt: skip
