"""The description inside a ``.pt`` file, read without running it.

``data.pkl`` is a short program for a stack machine that could, in general, call any function.
The interpreter here knows only the opcodes and the few constructors that ``torch.save`` uses
for one tensor; it never calls anything a file names, and refuses every other name. Equal
descriptions (same dtype, shape and storage) are interpreted once.

References: the opcode list in the standard library's ``pickletools``; ``torch/_utils.py`` for
the arguments of the constructors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from msprobe_nb.errors import TensorReadError, UnsafeFileError
from msprobe_nb.store.dtypes import storage_dtype

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
        self.stack.append(_Global(str(module), str(name)))

    def persistent(self) -> None:
        self.stack.append(_storage(self.stack.pop()))

    def reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        self.stack.append(_construct(function, arguments))

    def build(self) -> None:
        self.stack.pop()  # attributes of a Parameter or OrderedDict carry no values

    def set_items(self) -> None:
        items = self.to_mark()
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update(zip(items[::2], items[1::2], strict=False))

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        if isinstance(self.stack[-1], dict):
            self.stack[-1][key] = value


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
}


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
    if tag != "storage" or not isinstance(kind, _Global) or not isinstance(count, int):
        raise UnsafeFileError(f"unknown reference {description!r:.80}")
    if not kind.module.startswith("torch") or kind.name not in _STORAGES:
        raise NeedsTorch(kind.name)
    return _Storage(str(key), _STORAGES[kind.name], count)


def _construct(function: Any, arguments: Any) -> Any:
    """What a constructor call stands for; refuses everything but tensor constructors."""
    if not isinstance(function, _Global):
        raise UnsafeFileError(f"the file calls {function!r:.80}")
    full = f"{function.module}.{function.name}"
    if full == "collections.OrderedDict":
        return {}
    if full == "torch._utils._rebuild_tensor_v2":
        storage, offset, shape, stride, *rest = arguments
        return _view(storage, storage.dtype, offset, shape, stride, rest[2] if rest[2:] else None)
    if full == "torch._utils._rebuild_tensor_v3":
        storage, offset, shape, stride, _, _, dtype, *rest = arguments
        return _view(storage, _dtype(dtype), offset, shape, stride, rest[0] if rest else None)
    if full == "torch._utils._rebuild_parameter":
        return arguments[0]
    if function.module in _TORCH_CONSTRUCTORS:
        raise NeedsTorch(full)
    raise UnsafeFileError(f"the file would run {full}")


def _dtype(value: Any) -> str:
    if not isinstance(value, _Global) or value.module != "torch":
        raise UnsafeFileError(f"unknown data type {value!r:.80}")
    name = _DTYPES.get(value.name, value.name)
    try:
        storage_dtype(name)
    except ValueError:
        raise NeedsTorch(name) from None
    return name


def _view(
    storage: _Storage, dtype: str, offset: Any, shape: Any, stride: Any, metadata: Any
) -> TensorDescription:
    flags = metadata if isinstance(metadata, dict) else {}
    numbers = (offset, *shape, *stride)
    if not all(type(n) is int and n >= 0 for n in numbers) or len(shape) != len(stride):
        raise TensorReadError(f"shape {shape!r:.80} with stride {stride!r:.80} is impossible")
    return TensorDescription(
        storage.key,
        dtype,
        offset,
        tuple(shape),
        tuple(stride),
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
    except (IndexError, KeyError, ValueError, TypeError, UnicodeDecodeError) as error:
        if isinstance(error, (UnsafeFileError, TensorReadError)):
            raise
        raise TensorReadError(f"the description is broken ({type(error).__name__})") from None
    if not isinstance(found, TensorDescription):
        raise TensorReadError(f"the file holds a {type(found).__name__}, expected one tensor")
    return found
