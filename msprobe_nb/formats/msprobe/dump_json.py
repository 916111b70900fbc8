"""Reading ``dump.json`` and ``debug.json``.

Fast for what the official tool writes, tolerant for everything else.

The fast path decodes the outer object once, keeps every entry as a slice of the file's bytes
and decodes it when its turn comes, so memory stays near the size of the file. It needs strict
JSON; the literals ``NaN`` and ``Infinity`` that the official writer uses are replaced before
parsing by the texts of :mod:`msprobe_nb.store.jsonsafe`. Whatever the fast path refuses (lone
surrogates, literals inside lists, truncated files) goes through a scanner on the standard
library, which also finds where a truncated file breaks off. Either way entries come in the form
that :func:`~msprobe_nb.store.jsonsafe.restore` understands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from msprobe_nb.errors import FormatError, InvalidJSONError, reason_of
from msprobe_nb.store import jsonsafe

_REPLACED = (
    (b": NaN", b': "\\u0000nan"'),
    (b": Infinity", b': "\\u0000inf"'),
    (b": -Infinity", b': "\\u0000-inf"'),
)
_ENTRY_INDENT = b'\n  "'  # an entry's key in the layout of the official writer
_LATE_VALUE = b":\n"  # a value on a line of its own, which the official writer never makes
MAX_DEPTH = 400
TOO_DEEP = object()  # stands for an entry that nests too deeply to be decoded
_RESTORE = "Restore it from the original recording"


_SLICES = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(slots=True)
class DumpFile:
    """A parsed dump file.

    Attributes
    ----------
    header : dict
        All top-level keys but ``data``.
    count : int
        Number of entries.
    repeated : list of str
        Entry names that occur more than once.
    truncated : InvalidJSONError or None
        Where the file breaks off, when only its whole entries were read.
    data_at : int
        Position of ``data`` among the top-level keys.
    """

    header: dict[str, Any]
    count: int
    _pairs: Any
    repeated: list[str] = field(default_factory=list)
    truncated: InvalidJSONError | None = None
    data_at: int = 0

    def entries(self) -> Iterator[tuple[str, Any]]:
        """(name, entry) in file order; the entry as JSON bytes (``msgspec.Raw``) or decoded."""
        yield from self._pairs

    def release(self) -> None:
        """Forget the entries; header and findings stay."""
        self._pairs = ()


def parse_dump(raw: bytes, file: str, *, salvage: bool = False) -> DumpFile:
    """Parse a dump file.

    Parameters
    ----------
    raw : bytes
        The file.
    file : str
        Its path, for messages.
    salvage : bool
        Return the whole entries of a truncated file instead of raising.

    Raises
    ------
    InvalidJSONError
        Not JSON, not UTF-8, or truncated.
    FormatError
        JSON, but not a dump: no ``data``, or ``data`` is no object.
    """
    if not raw.strip():
        raise InvalidJSONError("the file is empty", file=file, remedy=_RESTORE)
    fast = _parse_fast(raw)
    return fast if fast is not None else _parse_tolerant(raw, file, salvage)


def _parse_fast(raw: bytes) -> DumpFile | None:
    if rb"\u0000" in raw:
        return None  # a text might look like one of ours
    found = _decode(raw)
    if found is None and (b"NaN" in raw or b"Infinity" in raw):
        for literal, replacement in _REPLACED:
            raw = raw.replace(literal, replacement)
        found = _decode(raw)
    if found is None:
        return None
    header, data, entries, data_at = found
    # Inside a JSON string no raw line break can stand, so in the layout of the official writer this
    # counts keys exactly. In any other layout the gaps between the entries have to be looked at.
    start = _address(data) - _address(raw)
    end = start + len(memoryview(data))
    usual = raw.find(_LATE_VALUE, start, end) < 0
    if usual and raw.count(_ENTRY_INDENT, start, end) == len(entries):
        return DumpFile(header, len(entries), entries.items(), data_at=data_at)
    try:
        return _finish(header, _members(raw, data, entries), None, data_at)
    except (ValueError, RecursionError):
        return None


def _members(
    raw: bytes, data: msgspec.Raw, entries: dict[str, msgspec.Raw]
) -> list[tuple[str, Any]]:
    """All entries in file order, also those of repeated names.

    A dictionary keeps the last of them; the others are in the gap before the next entry.
    """
    base = _address(raw)
    placed = sorted((_address(entry) - base, name, entry) for name, entry in entries.items())
    pairs: list[tuple[str, Any]] = []
    end = _address(data) - base
    for start, name, entry in placed:
        if not _ONE_KEY.fullmatch(raw, end, start):
            pairs += _dropped(raw[end:start])
        pairs.append((name, entry))
        end = start + len(memoryview(entry))
    return pairs


def _dropped(gap: bytes) -> list[tuple[str, Any]]:
    """The entries in a gap, which ends with the key of the entry after it."""
    scanner = _Scanner("{" + gap.decode().lstrip()[1:] + "0}", _FREE)
    return [(name, scanner.value()) for name in scanner.walk_keys()][:-1]


def _address(part: bytes | msgspec.Raw) -> int:
    """Where in memory some bytes begin; slices lie inside the file they were cut from."""
    return int(np.frombuffer(part, np.uint8).__array_interface__["data"][0])


def _decode(
    raw: bytes,
) -> tuple[dict[str, Any], msgspec.Raw, dict[str, msgspec.Raw], int] | None:
    """Header, ``data``, undecoded entries, place of ``data``; None if no strict JSON or no dump."""
    try:
        outer = _SLICES.decode(raw)
        data_at = list(outer).index("data") if "data" in outer else 0
        data = outer.pop("data")
        header = {key: msgspec.json.decode(value) for key, value in outer.items()}
        return jsonsafe.restore(header), data, _SLICES.decode(data), data_at
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, KeyError):
        return None


_SPACE = re.compile(r"[ \t\n\r]*")
_ONE_KEY = re.compile(rb'[ \t\n\r]*[,{][ \t\n\r]*"(?:[^"\\]|\\.)*+"[ \t\n\r]*:[ \t\n\r]*')


def _integer(digits: str) -> int | float:
    """An integer; infinity for one with more digits than Python converts."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _safe_float(digits: str) -> float | str:
    return jsonsafe.replace(float(digits))


def _safe_integer(digits: str) -> int | str:
    return jsonsafe.replace(_integer(digits))


_FREE = json.JSONDecoder(
    parse_int=_safe_integer, parse_float=_safe_float, parse_constant=_safe_float
)


def decode_entry(raw: msgspec.Raw, name: str) -> Any:
    """One entry, whatever shape it has; `TOO_DEEP` for one that nests too deeply.

    Numbers beyond float64 are infinite, as they are for the official tool.

    Raises
    ------
    InvalidJSONError
        The entry is no JSON, or not UTF-8.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _FREE.decode(bytes(raw).decode())
    except RecursionError:
        return TOO_DEEP
    except ValueError as error:
        raise InvalidJSONError(
            f"the entry cannot be read ({reason_of(error)})", key=name, remedy=_RESTORE
        ) from None


class _Scanner:
    """Walks the outer object and ``data`` key by key, keeping repeated keys."""

    def __init__(self, text: str, decoder: json.JSONDecoder | None = None) -> None:
        self.text, self.at = text, 0
        self.decoder = decoder or json.JSONDecoder(parse_int=_integer)

    def skip(self) -> str:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
        return self.text[self.at : self.at + 1]

    def expect(self, character: str) -> None:
        if self.skip() != character:
            raise json.JSONDecodeError(f"expected {character!r}", self.text, self.at)
        self.at += 1

    def value(self) -> Any:
        self.skip()
        value, self.at = self.decoder.raw_decode(self.text, self.at)
        return value

    def walk_keys(self) -> Iterator[str]:
        """Keys of the object at the cursor; the caller consumes each value."""
        self.expect("{")
        if self.skip() == "}":
            self.at += 1
            return
        while True:
            if self.skip() != '"':
                raise json.JSONDecodeError("expected a name", self.text, self.at)
            key = self.value()
            self.expect(":")
            yield key
            if self.skip() == "}":
                self.at += 1
                return
            self.expect(",")


def _parse_tolerant(raw: bytes, file: str, salvage: bool) -> DumpFile:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidJSONError(
            f"the file is not UTF-8 (byte {error.start} is 0x{raw[error.start]:02x})",
            file=file,
            remedy=_RESTORE,
        ) from None
    scanner = _Scanner(text)
    header: dict[str, Any] = {}
    pairs: list[tuple[str, Any]] | None = None
    data_at = 0
    try:
        if scanner.skip() != "{":
            raise FormatError("the file holds no JSON object", file=file, remedy=_RESTORE)
        for key in scanner.walk_keys():
            if key != "data":
                header[key] = scanner.value()
            elif scanner.skip() == "{":
                pairs, data_at = [], len(header)
                for name in scanner.walk_keys():
                    pairs.append((name, _replaced(scanner.value())))
            else:
                kind = type(scanner.value()).__name__
                raise FormatError(
                    f"'data' is a {kind}, expected an object of entries",
                    file=file,
                    key="data",
                    remedy="Record it again, or point to a dump.json of the official tool",
                )
        if scanner.skip():
            raise json.JSONDecodeError("extra text after the end", text, scanner.at)
    except (json.JSONDecodeError, RecursionError) as error:
        fault = _describe(error, scanner, file, pairs)
        if not (salvage and pairs):
            raise fault from None
        return _finish(header, pairs, fault, data_at)
    if pairs is None:
        raise FormatError(
            "'data' is missing",
            file=file,
            key="data",
            remedy="Point to a dump.json or debug.json of the official tool",
        )
    return _finish(header, pairs, None, data_at)


def _replaced(entry: Any) -> Any:
    try:
        return jsonsafe.replace(entry)
    except RecursionError:
        return TOO_DEEP


def _describe(
    error: Exception, scanner: _Scanner, file: str, pairs: list[tuple[str, Any]] | None
) -> InvalidJSONError:
    text = scanner.text
    if isinstance(error, RecursionError):
        return InvalidJSONError(
            f"values nest deeper than {MAX_DEPTH} levels near character {scanner.at}",
            file=file,
            remedy=_RESTORE,
        )
    assert isinstance(error, json.JSONDecodeError)
    whole = f"; {len(pairs)} whole entries stand before" if pairs else ""
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
        return InvalidJSONError(
            f"the file ends in the middle (after {len(text)} characters){whole}",
            file=file,
            remedy="Its writer was probably stopped. Copy it again, or open it with salvage=True "
            "to read what is whole",
        )
    return InvalidJSONError(
        f"invalid JSON at line {error.lineno} column {error.colno}: {error.msg}{whole}",
        file=file,
        remedy=f"{_RESTORE}, or open it with salvage=True to read what is whole",
    )


def _finish(
    header: dict[str, Any],
    pairs: list[tuple[str, Any]],
    fault: InvalidJSONError | None,
    data_at: int,
) -> DumpFile:
    seen: set[str] = set()
    repeated = list(dict.fromkeys(n for n, _ in pairs if n in seen or seen.add(n)))  # type: ignore[func-returns-value]
    return DumpFile(header, len(pairs), pairs, repeated, fault, data_at)
