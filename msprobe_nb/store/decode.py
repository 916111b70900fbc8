"""From stored parts to plain values, for tensors that are not one dense array.

``formats.torch_values`` writes these forms and documents them; reading them needs only numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from msprobe_nb.errors import TensorReadError
from msprobe_nb.store.dtypes import widen
from msprobe_nb.store.limits import check_dense


def densify(
    array: np.ndarray | None,
    shape: tuple[int, ...],
    detail: dict[str, Any],
    component: Callable[[str], np.ndarray],
) -> np.ndarray:
    """The plain values of a stored tensor.

    Parameters
    ----------
    array : ndarray or None
        Main array.
    shape : tuple of int
        Shape of the tensor.
    detail : dict
        Its description; ``detail["layout"]`` names the form, absent for a dense tensor.
    component : callable
        Name -> component array.

    Returns
    -------
    ndarray
        Quantised tensors as float32, sparse ones filled with zeros, nested ones padded with zeros.

    Raises
    ------
    TensorReadError
        There are no values (meta tensors), or the dense form would not fit in memory.
    """
    layout = detail.get("layout")
    if layout == "quantized" and array is not None:
        return _dequantize(array, detail, component)
    if layout == "nested":
        parts = [component(str(i)) for i in range(len(detail["shapes"]))]
        return _pad(parts)
    if layout == "meta":
        raise TensorReadError("a meta tensor has no values")
    if isinstance(layout, str) and layout.startswith("sparse_"):
        values = component("values")
        check_dense(shape, values.dtype.itemsize)
        dense = np.zeros(shape, values.dtype)
        if layout == "sparse_coo":
            dense[tuple(component("indices"))] = values
        else:
            _fill_compressed(dense, layout, component("compressed"), component("plain"), values)
        return dense
    if array is None:
        raise TensorReadError("the tensor's values were not recorded")
    return array


def _dequantize(
    codes: np.ndarray, detail: dict[str, Any], component: Callable[[str], np.ndarray]
) -> np.ndarray:
    numbers = widen(codes).astype(np.float32)
    if "scale" in detail:
        return (numbers - np.float32(detail["zero_point"])) * np.float32(detail["scale"])
    along = [1] * codes.ndim
    along[detail["channel_axis"]] = -1
    scales = component("scales").astype(np.float32).reshape(along)
    return (numbers - component("zero_points").astype(np.float32).reshape(along)) * scales


def _pad(parts: list[np.ndarray]) -> np.ndarray:
    if not parts:
        raise TensorReadError("the nested tensor is empty")
    longest = np.max([part.shape for part in parts], axis=0).tolist()
    check_dense((len(parts), *longest), parts[0].dtype.itemsize)
    dense = np.zeros((len(parts), *longest), parts[0].dtype)
    for row, part in enumerate(parts):
        place: tuple[int | slice, ...] = (row, *(slice(n) for n in part.shape))
        dense[place] = part
    return dense


def _fill_compressed(
    dense: np.ndarray, layout: str, compressed: np.ndarray, plain: np.ndarray, values: np.ndarray
) -> None:
    """Scatter the values of a compressed sparse matrix, in blocks for BSR and BSC."""
    if compressed.ndim != 1:
        raise TensorReadError("a batch of compressed sparse matrices has no dense view")
    lines = np.repeat(np.arange(len(compressed) - 1), np.diff(compressed))
    rows, columns = (lines, plain) if layout in ("sparse_csr", "sparse_bsr") else (plain, lines)
    if values.ndim == 1:
        dense[rows, columns] = values
        return
    height, width = values.shape[1:3]
    blocks = dense.reshape(dense.shape[0] // height, height, dense.shape[1] // width, width)
    blocks[rows, :, columns, :] = values
