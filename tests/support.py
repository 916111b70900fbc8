"""What several tests need: where recordings are, how to make them, how to compare files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
DUMPS, RESULTS = DATA / "dumps", DATA / "results"
RESNET = ROOT / "notebooks" / "data" / "resnet50"
SHARED = Path(os.environ.get("MSPROBE_NB_DATA", ROOT.parent / "shared" / "data"))

requires_shared = pytest.mark.skipif(
    not (SHARED / "dump").is_dir(),
    reason="the large recordings are not here; point MSPROBE_NB_DATA to them",
)

# ---------------------------------------------------------------- making recordings


def tensor(
    shape: Any = (2, 3),
    dtype: str = "torch.float32",
    *,
    value: float = 1.0,
    norm: float | None = None,
    data_name: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A tensor as dump.json describes it."""
    entry = {
        "type": "torch.Tensor",
        "dtype": dtype,
        "shape": list(shape) if isinstance(shape, tuple) else shape,
        "Max": value,
        "Min": value,
        "Mean": value,
        "Norm": value if norm is None else norm,
        "requires_grad": False,
    }
    if data_name is not None:
        entry["data_name"] = data_name
    return {**entry, **more}


def call(inputs: list[Any], outputs: list[Any], **more: Any) -> dict[str, Any]:
    """A forward call."""
    return {"input_args": inputs, "input_kwargs": {}, "output": outputs, **more}


def write_dump(folder: Path, data: Any, **head: Any) -> Path:
    """Write a dump.json as the official tool does and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "task": "statistics",
        "level": "L1",
        "framework": "pytorch",
        "dump_data_dir": None,
        **head,
        "data": data,
    }
    content = {key: value for key, value in content.items() if value is not ...}
    (folder / "dump.json").write_text(json.dumps(content, indent=1))
    return folder


def op(norm: float = 1.0, shape: tuple[int, ...] = (2, 3), dtype: str = "torch.float32") -> Any:
    value = tensor(shape, dtype, norm=norm)
    return call([value], [value])


def back(norm: float = 1.0, shape: tuple[int, ...] = (2, 3)) -> Any:
    return {"input": [tensor(shape, norm=norm)], "output": [tensor(shape, norm=norm)]}


def paired_calls(
    tmp_path: Path, ours: dict[str, Any], theirs: dict[str, Any], **options: Any
) -> dict[str, str]:
    """Target call -> golden call, by the first row of each; the heads may be given as well."""
    heads = [options.pop(side, {}) for side in ("target", "golden")]
    import msprobe_nb

    write_dump(tmp_path / "a", ours, **heads[0])
    write_dump(tmp_path / "b", theirs, **heads[1])
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False, **options)
    found = {}
    for row in result.table.itertuples():
        other = row.golden if isinstance(row.golden, str) else ""
        for mark in (".input.", ".output.", ".parameters."):
            other = other.split(mark)[0]
        found.setdefault(row.node, other)
    return found


def calls_in_order(*calls: str, norms: Sequence[float] = ()) -> dict[str, Any]:
    """Forward calls, numbered, each with its norm."""
    seen: dict[str, int] = {}
    data = {}
    for at, name in enumerate(calls):
        number = seen.get(name, 0)
        seen[name] = number + 1
        data[f"{name}.{number}.forward"] = op(norms[at] if norms else 1.0 + at)
    return data


# ---------------------------------------------------------------- official result files


def read_csv(path: Path) -> list[list[str]]:
    """All cells of a csv file, also a gzipped one."""
    csv.field_size_limit(1 << 30)
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    return list(csv.reader(io.StringIO(text, newline="")))


def read_xlsx(path: Path) -> dict[str, list[list[str]]]:
    """All cells of every sheet of a spreadsheet as texts; an empty cell is an empty text."""
    import openpyxl

    book = openpyxl.load_workbook(path)
    return {
        sheet.title: [
            ["" if cell is None else str(cell) for cell in row]
            for row in sheet.iter_rows(values_only=True)
        ]
        for sheet in book
    }


def read_table(path: Path) -> list[list[str]]:
    """All cells of a csv file or of the only sheet of a spreadsheet."""
    if path.suffix == ".xlsx":
        (cells,) = read_xlsx(path).values()
        return cells
    return read_csv(path)


def same_cell(ours: str, theirs: str, tolerance: float = 1e-12) -> bool:
    """Whether two cells say the same, numbers compared as numbers."""
    if ours == theirs:
        return True
    a, b = ours.strip(), theirs.strip()
    if a.endswith("%") != b.endswith("%"):
        return False
    try:
        x, y = float(a.rstrip("%")), float(b.rstrip("%"))
    except ValueError:
        return False
    return x == y or (math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=tolerance)


def different_cells(ours: Path, theirs: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """(row name, column) -> (our cell, their cell) for every cell that differs; the two files
    must have the same columns and the same number of rows."""
    a, b = read_table(ours), read_table(theirs)
    assert a[0] == b[0]
    assert len(a) == len(b)
    return {
        (row[0], title): (x, y)
        for row, other in zip(a[1:], b[1:], strict=True)
        for title, x, y in zip(a[0], row, other, strict=True)
        if not same_cell(x, y)
    }


# ---------------------------------------------------------------- random tensors

PLAIN = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
LOW = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name)) if name in LOW else np.dtype(name)


@st.composite
def arrays(draw: st.DrawFn, names: list[str] = PLAIN + LOW, max_side: int = 6) -> np.ndarray:
    """An array of any stored dtype and any shape, 0-d and empty ones included."""
    dtype = dtype_of(draw(st.sampled_from(names)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=max_side))
    count = int(np.prod(shape)) * dtype.itemsize
    raw = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), np.uint8)
    if dtype == np.bool_:
        raw = raw % 2
    return raw.view(dtype).reshape(shape)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal dtype, shape and bytes."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
