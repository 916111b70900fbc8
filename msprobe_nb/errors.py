"""Every error the package raises on purpose.

All derive from :class:`MsProbeError` and from the builtin a caller would expect, so both
``except MsProbeError`` and ``except FileNotFoundError`` work. A message always names the
file (and the key inside it, when there is one) and says what to do about it. Faults of a
single tensor are not raised at all while many are processed: they become rows with a reason.
"""

from __future__ import annotations

import os
import re


class MsProbeError(Exception):
    """Base of all errors of this package.

    Parameters
    ----------
    what : str
        What is wrong, as a sentence without a full stop.
    file : path, optional
        The file or folder at fault.
    key : str, optional
        The key, entry or tensor inside the file.
    remedy : str, optional
        What the user can do, as a sentence without a full stop.
    """

    def __init__(
        self,
        what: str,
        *,
        file: str | os.PathLike[str] | None = None,
        key: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.what, self.key, self.remedy = what, key, remedy
        self.file = None if file is None else os.fspath(file)
        super().__init__(what)

    def __str__(self) -> str:
        where = ", ".join(
            part
            for part in (
                f"file {self.file}" if self.file is not None else "",
                f"key {self.key!r}" if self.key is not None else "",
            )
            if part
        )
        text = self.what + (f" ({where})" if where else "") + "."
        return text + (f" {self.remedy}." if self.remedy else "")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.file, self.key, self.remedy)


def _rebuild(
    cls: type[MsProbeError], what: str, file: str | None, key: str | None, remedy: str | None
) -> MsProbeError:
    return cls(what, file=file, key=key, remedy=remedy)


class PathNotFoundError(MsProbeError, FileNotFoundError):
    """The path or URL does not exist."""

    __str__ = MsProbeError.__str__


class NotARunError(MsProbeError, ValueError):
    """The path exists but is neither a run store nor an official dump folder."""


class FormatError(MsProbeError, ValueError):
    """A file exists but its content is not what its format says."""


class InvalidJSONError(FormatError):
    """A JSON file that is broken, truncated or not UTF-8."""


class DamagedStoreError(FormatError):
    """A run store, or one pack of it, with missing or contradicting parts."""


class WriteError(MsProbeError, OSError):
    """A file or folder that cannot be written."""

    __str__ = MsProbeError.__str__


class UnsafeFileError(MsProbeError, ValueError):
    """A file that would have to run code to be read, or a path that leaves its folder."""


class TensorReadError(MsProbeError, OSError):
    """The data of one tensor is missing or cannot be read."""

    __str__ = MsProbeError.__str__


class UnreachableError(MsProbeError, OSError):
    """A path or URL that may exist but cannot be read: no permission, no answer, broken archive."""

    __str__ = MsProbeError.__str__


class UnknownTensorError(MsProbeError, KeyError):
    """A name, step or rank that the run does not have."""

    __str__ = MsProbeError.__str__


class CompareError(MsProbeError, ValueError):
    """Two runs that cannot be compared with each other."""


class TaskMismatchError(CompareError):
    """Target and golden were recorded with different tasks or summary modes."""


class FrameworkMismatchError(CompareError):
    """A pair of frameworks that the comparison does not support."""


class NoCommonRankError(CompareError):
    """No step and rank exist on both sides."""


class UsageError(MsProbeError, ValueError):
    """An argument that is out of range or contradicts another one."""


_CONTROL = re.compile(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f]")


def reason_of(error: BaseException, text: str | None = None) -> str:
    """What an error of any library says, as one short line without terminal codes.

    `text` is the part of its message that matters, if it is not the beginning.
    """
    lines = _CONTROL.sub("", str(error) if text is None else text).strip().splitlines()
    kind = type(error).__name__
    return f"{kind}: {lines[0]:.120}" if lines else kind
