"""Mapping tables that users give: a YAML file, or what such a file would hold."""

from __future__ import annotations

import os
from typing import Any

from msprobe_nb.errors import FormatError, PathNotFoundError, UsageError

Mapping = str | os.PathLike[str] | dict[Any, Any] | list[Any]
_LARGEST = 64 << 20


def read_yaml(source: Mapping, what: str) -> tuple[Any, str]:
    """The content of a mapping argument and where it is from, for messages.

    Parameters
    ----------
    source : path, dict or list
    what : str
        What the file is for, such as ``data mapping``.

    Raises
    ------
    PathNotFoundError, FormatError
        There is no such file, or it is no YAML of plain values.
    """
    if isinstance(source, (dict, list)):
        return source, f"the given {what}"
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(
            f"a {what} is a file or a table, not {type(source).__name__}",
            remedy="Give the path of a YAML file, a dict or a list",
        )
    import yaml

    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            raw = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise PathNotFoundError(f"the {what} file does not exist", file=path) from None
    except OSError as error:
        raise FormatError(f"the {what} cannot be read ({error.strerror})", file=path) from None
    if len(raw) > _LARGEST:
        raise FormatError(f"the {what} is larger than {_LARGEST >> 20} MiB", file=path)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster
    try:
        return yaml.load(raw, loader), path
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        text = " ".join(str(error).split())
        raise FormatError(
            f"the {what} is no valid YAML ({text:.160})",
            file=path,
            remedy="Only plain values, lists and mappings are allowed",
        ) from None


def text_table(source: Mapping, what: str) -> dict[str, str]:
    """A flat mapping of texts.

    Raises
    ------
    FormatError
        It is something else.
    """
    content, where = read_yaml(source, what)
    return as_texts(content if content is not None else {}, what, where)


def as_texts(content: Any, what: str, where: str) -> dict[str, str]:
    """`content` as a mapping of texts; numbers and the like become texts."""
    if not isinstance(content, dict) or any(
        isinstance(value, (dict, list)) or value is None for value in content.values()
    ):
        raise FormatError(
            f"the {what} is no mapping of names to names",
            file=where,
            remedy="Write one 'name: other name' a line",
        )
    return {str(key): str(value) for key, value in content.items()}
