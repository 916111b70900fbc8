"""The description inside a ``.pt`` file, read without running it.

``data.pkl`` is a short program for a stack machine that could, in general, call any function.
The interpreter here knows only the opcodes and the few constructors that ``torch.save`` uses
for one tensor; it never calls anything a file names, and refuses every other name. Nor does it
print, hash or compare what a file builds: a tuple that holds the last one twice, a hundred times
over, takes a hundred bytes and has 2**100 elements. Equal descriptions (same dtype, shape and
storage) are interpreted once.

References: the opcode list in the standard library's ``pickletools``; ``torch/_utils.py`` for
the arguments of the constructors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from msprobe_nb.errors import TensorReadError, UnsafeFileError
from msprobe_nb.store.dtypes import storage_dtype
from msprobe_nb.store.limits import is_possible

_STORAGES = {
    **{"FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16"},
    **{"BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32"},
    **{"ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8"},
    **{"BoolStorage": "bool", "ComplexFloatStorage": "complex64"},
    **{"ComplexDoubleStorage": "complex128", "UntypedStorage": "uint8"},
}
_DTYPES = {
    **{"float": "float32", "double": "float64", "half": "float16", "long": "int64"},
    **{"int": "int32", "short": "int16", "cfloat": "complex64", "cdouble": "complex128"},
}


_WIDEST = 16  # bytes of an element


class NeedsTorch(Exception):
    """The file is harmless but in a form that only torch reads."""


@dataclass(frozen=True, slots=True)
class _Global:
    """A named constructor or type that the description refers to; never called."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: str
    count: int


@dataclass(frozen=True, slots=True)
class TensorDescription:
    """What ``data.pkl`` says about the tensor.

    Attributes
    ----------
    storage : str
        Key of the record with its bytes.
    dtype : str
        Storage dtype name.
    offset : int
        First element, counted in elements of `dtype`.
    shape, stride : tuple of int
        Stride in elements.
    conjugate, negative : bool
        Lazy views that are not applied in the stored bytes.
    """

    storage: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    conjugate: bool = False
    negative: bool = False


_MARK = object()


class _Machine:
    """Interprets the opcodes that ``torch.save`` writes for one tensor."""

    def __init__(self, program: bytes) -> None:
        self.program, self.at = program, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        program, handlers = self.program, _HANDLERS
        while self.at < len(program):
            code = program[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return self.stack.pop()
            handler = handlers.get(code)
            if handler is None:
                if code in HARMLESS:
                    raise NeedsTorch(f"opcode 0x{code:02x}")
                raise UnsafeFileError(f"opcode 0x{code:02x} has no place in a tensor file")
            handler(self)
        raise TensorReadError("the description ends early")

    def take(self, count: int) -> bytes:
        raw = self.program[self.at : self.at + count]
        if len(raw) != count:
            raise TensorReadError("the description ends early")
        self.at += count
        return raw

    def line(self) -> str:
        end = self.program.index(b"\n", self.at)
        text = self.program[self.at : end].decode()
        self.at = end + 1
        return text

    def to_mark(self) -> list[Any]:
        at = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def integer(self, count: int, signed: bool = False) -> int:
        return int.from_bytes(self.take(count), "little", signed=signed)

    def global_(self) -> None:
        self.stack.append(_Global(self.line(), self.line()))

    def stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str:
            raise TensorReadError("the description is broken (a name is no text)")
        self.stack.append(_Global(module, name))

    def persistent(self) -> None:
        self.stack.append(_storage(self.stack.pop()))

    def reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        self.stack.append(_construct(function, arguments))

    def build(self) -> None:
        self.stack.pop()  # attributes of a Parameter or OrderedDict carry no values

    def set_items(self) -> None:
        items = self.to_mark()
        self._assign(zip(items[::2], items[1::2], strict=False))

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._assign([(key, value)])

    def _assign(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Put items into the dictionary on the stack; only texts matter as keys."""
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update((key, value) for key, value in pairs if type(key) is str)


def _push(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    def handler(machine: _Machine) -> None:
        machine.stack.append(make(machine))

    return handler


def _last(count: int) -> Callable[[_Machine], Any]:
    def make(machine: _Machine) -> tuple[Any, ...]:
        items = tuple(machine.stack[-count:])
        del machine.stack[-count:]
        return items

    return make


def _put(count: int) -> Callable[[_Machine], None]:
    def handler(machine: _Machine) -> None:
        machine.memo[machine.integer(count)] = machine.stack[-1]

    return handler


def _text(count: int) -> Callable[[_Machine], Any]:
    return lambda machine: machine.take(machine.integer(count)).decode()


def _integer_line(machine: _Machine) -> int | bool:
    """The number of a line; protocols 0 and 1 write booleans as 00 and 01."""
    line = machine.line()
    return {"00": False, "01": True}[line] if line in ("00", "01") else int(line)


def _memoize(machine: _Machine) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


_HANDLERS: dict[int, Callable[[_Machine], Any]] = {
    0x80: lambda machine: machine.take(1),  # PROTO
    0x95: lambda machine: machine.take(8),  # FRAME
    ord("("): _push(lambda machine: _MARK),
    ord(")"): _push(lambda machine: ()),
    ord("}"): _push(lambda machine: {}),
    ord("]"): _push(lambda machine: []),
    ord("t"): _push(lambda machine: tuple(machine.to_mark())),
    0x85: _push(_last(1)),
    0x86: _push(_last(2)),
    0x87: _push(_last(3)),
    ord("N"): _push(lambda machine: None),
    0x88: _push(lambda machine: True),
    0x89: _push(lambda machine: False),
    ord("K"): _push(lambda machine: machine.integer(1)),
    ord("M"): _push(lambda machine: machine.integer(2)),
    ord("I"): _push(_integer_line),
    ord("J"): _push(lambda machine: machine.integer(4, signed=True)),
    0x8A: _push(lambda machine: machine.integer(machine.integer(1), signed=True)),
    ord("G"): _push(lambda machine: struct.unpack(">d", machine.take(8))[0]),
    ord("X"): _push(_text(4)),
    0x8C: _push(_text(1)),
    ord("h"): _push(lambda machine: machine.memo[machine.integer(1)]),
    ord("j"): _push(lambda machine: machine.memo[machine.integer(4)]),
    ord("q"): _put(1),
    ord("r"): _put(4),
    0x94: _memoize,
    ord("c"): _Machine.global_,
    0x93: _Machine.stack_global,
    ord("Q"): _Machine.persistent,
    ord("R"): _Machine.reduce,
    ord("b"): _Machine.build,
    ord("u"): _Machine.set_items,
    ord("s"): _Machine.set_item,
    ord("a"): lambda machine: machine.stack.pop(),  # a list is no tensor, whatever is in it
    ord("e"): _Machine.to_mark,
}


# Opcodes of lists, texts and numbers in older forms: nothing is called, only torch reads them.
HARMLESS = frozenset(b"012FLPSTUVdgp\x8b")

# Modules whose functions only assemble tensors; torch's own checked reader decides about each.
_TORCH_CONSTRUCTORS = (
    "torch",
    "torch._tensor",
    "torch._utils",
    "torch.nested._internal",
    "torch.serialization",
)


def _storage(description: Any) -> _Storage:
    """A storage from its persistent id ``('storage', type, key, location, count)``."""
    tag, kind, key, _, count = description
    known = tag == "storage" and isinstance(kind, _Global) and isinstance(count, int)
    if not known or type(key) is not str:
        raise UnsafeFileError("the file refers to something that is no tensor storage")
    if not kind.module.startswith("torch") or kind.name not in _STORAGES:
        raise NeedsTorch(kind.name)
    return _Storage(key, _STORAGES[kind.name], count)


def _construct(function: Any, arguments: Any) -> Any:
    """What a constructor call stands for; refuses everything but tensor constructors."""
    if not isinstance(function, _Global):
        raise UnsafeFileError(f"the file calls a {type(function).__name__}")
    full = f"{function.module}.{function.name}"
    if full == "collections.OrderedDict":
        return {}
    if full == "torch._utils._rebuild_tensor_v2":
        storage, offset, shape, stride, *rest = arguments
        return _view(storage, None, offset, shape, stride, rest[2] if rest[2:] else None)
    if full == "torch._utils._rebuild_tensor_v3":
        storage, offset, shape, stride, _, _, dtype, *rest = arguments
        return _view(storage, dtype, offset, shape, stride, rest[0] if rest else None)
    if full == "torch._utils._rebuild_parameter":
        return arguments[0]
    if function.module in _TORCH_CONSTRUCTORS:
        raise NeedsTorch(full)
    raise UnsafeFileError(f"the file would run {full}")


def _dtype(value: Any) -> str:
    if not isinstance(value, _Global) or value.module != "torch":
        raise UnsafeFileError("the file names something else as a data type")
    name = _DTYPES.get(value.name, value.name)
    try:
        storage_dtype(name)
    except ValueError:
        raise NeedsTorch(name) from None
    return name


def _view(
    storage: Any, dtype: Any, offset: Any, shape: Any, stride: Any, metadata: Any
) -> TensorDescription:
    """A tensor of a storage, in the storage's own type unless `dtype` names another."""
    if not isinstance(storage, _Storage):
        raise TensorReadError("the description is broken (a tensor without storage)")
    flags = metadata if isinstance(metadata, dict) else {}
    if not all(type(part) is tuple for part in (shape, stride)) or not all(
        type(n) is int for n in (offset, *shape, *stride)
    ):
        raise TensorReadError("the description is broken (a shape or stride is no list of numbers)")
    if min((offset, *stride)) < 0 or len(shape) != len(stride) or not is_possible(shape, _WIDEST):
        raise TensorReadError(f"shape {shape!s:.80} with stride {stride!s:.80} is impossible")
    return TensorDescription(
        storage.key,
        storage.dtype if dtype is None else _dtype(dtype),
        offset,
        shape,
        stride,
        bool(flags.get("conj")),
        bool(flags.get("neg")),
    )


@lru_cache(maxsize=4096)
def describe(program: bytes) -> TensorDescription:
    """The tensor that a ``data.pkl`` describes.

    Raises
    ------
    UnsafeFileError
        It would call anything but a tensor constructor.
    TensorReadError
        It is broken, or describes something that is no tensor.
    """
    try:
        found = _Machine(program).run()
    except (NeedsTorch, UnsafeFileError, TensorReadError):
        raise
    except Exception as error:  # a program may be wrong in more ways than can be listed
        raise TensorReadError(f"the description is broken ({type(error).__name__})") from None
    if not isinstance(found, TensorDescription):
        raise TensorReadError(f"the file holds a {type(found).__name__}, expected one tensor")
    return found
