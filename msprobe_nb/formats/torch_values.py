"""How a torch tensor of any kind is stored: one plain array, components, and a description.

======================  ===================================================================
tensor                  stored as
======================  ===================================================================
dense                   its elements in C order, own dtype
quantised               the integer codes; ``detail.layout = "quantized"`` with scale and zero
                        point (per tensor), or per-channel scales and zero points as components
sparse COO              no array; components ``indices`` (int64) and ``values``
sparse CSR/CSC/BSR/BSC  no array; components ``compressed``, ``plain`` and ``values``
nested                  no array; one component per constituent, ``0``, ``1`` ...
DTensor                 the local shard; ``detail.placements`` and ``detail.device_mesh``
meta, fake              no array; dtype and shape only, ``detail.layout = "meta"``
======================  ===================================================================

Reading gives the dense values again (:meth:`Encoded.dense`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe_nb.errors import FormatError
from msprobe_nb.store.decode import densify
from msprobe_nb.store.dtypes import is_low_precision, storage_dtype

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class Encoded:
    """The stored form of a tensor.

    Attributes
    ----------
    array : ndarray or None
        Main array, C order.
    dtype : str
        Recorded dtype text, such as ``torch.float32``.
    shape : tuple of int
        Shape of the tensor (of the local shard for a DTensor).
    components : dict of str to ndarray
    detail : dict
        JSON-ready description.
    """

    array: np.ndarray | None
    dtype: str
    shape: tuple[int, ...]
    components: dict[str, np.ndarray] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)

    def dense(self) -> np.ndarray:
        """The values as one plain array (zeros where a sparse tensor stores nothing)."""
        return densify(self.array, self.shape, self.detail, self.components.__getitem__)


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """A strided CPU or device tensor as a numpy array, bit for bit.

    bfloat16 and float8 come back as ``ml_dtypes``. The result may share memory with a CPU tensor.
    """
    import torch

    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    name = str(plain.dtype).removeprefix("torch.")
    dtype = storage_dtype(name)
    try:
        return plain.numpy()
    except TypeError:
        as_integer = {1: torch.uint8, 2: torch.int16}[plain.element_size()]
        return plain.view(as_integer).numpy().view(dtype)


def encode(tensor: torch.Tensor) -> Encoded:
    """The stored form of any tensor."""
    from torch._subclasses.fake_tensor import FakeTensor

    dtype = str(tensor.dtype)
    if hasattr(tensor, "to_local") and hasattr(tensor, "placements"):
        local = encode(tensor.to_local())
        local.detail["placements"] = [_placement(p) for p in tensor.placements]
        local.detail["device_mesh"] = tensor.device_mesh.mesh.tolist()
        local.detail["global_shape"] = list(tensor.shape)
        return local
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        return Encoded(None, dtype, tuple(tensor.shape), detail={"layout": "meta"})
    if tensor.is_nested:
        parts = {str(i): to_array(part) for i, part in enumerate(tensor.unbind())}
        shapes = [list(part.shape) for part in parts.values()]
        return Encoded(None, dtype, (len(parts),), parts, {"layout": "nested", "shapes": shapes})
    if tensor.is_quantized:
        return _encode_quantized(tensor, dtype)
    layout = str(tensor.layout).removeprefix("torch.")
    if layout == "sparse_coo":
        whole = tensor.detach().coalesce()
        parts = {"indices": to_array(whole.indices()), "values": to_array(whole.values())}
        return Encoded(None, dtype, tuple(tensor.shape), parts, {"layout": layout})
    if layout.startswith("sparse_"):
        by_row = layout in ("sparse_csr", "sparse_bsr")
        parts = {
            "compressed": to_array(tensor.crow_indices() if by_row else tensor.ccol_indices()),
            "plain": to_array(tensor.col_indices() if by_row else tensor.row_indices()),
            "values": to_array(tensor.values()),
        }
        return Encoded(None, dtype, tuple(tensor.shape), parts, {"layout": layout})
    return Encoded(to_array(tensor), dtype, tuple(tensor.shape))


def _encode_quantized(tensor: torch.Tensor, dtype: str) -> Encoded:
    import torch

    codes = to_array(tensor.int_repr())
    detail: dict[str, Any] = {"layout": "quantized"}
    parts: dict[str, np.ndarray] = {}
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        detail |= {"scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
    else:
        detail["channel_axis"] = tensor.q_per_channel_axis()
        parts["scales"] = to_array(tensor.q_per_channel_scales())
        parts["zero_points"] = to_array(tensor.q_per_channel_zero_points())
    return Encoded(codes, dtype, tuple(tensor.shape), parts, detail)


def _placement(placement: Any) -> dict[str, Any]:
    """A DTensor placement in the official spelling: ``{"Shard": {"dim": 0}}``."""
    name = type(placement).__name__
    if placement.is_shard():
        return {name: {"dim": placement.dim}}
    if placement.is_partial():
        return {name: {"reduce_op": placement.reduce_op}}
    return {name: {}}


def from_array(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor with memory of its own: the inverse of :func:`to_array`.

    Raises
    ------
    FormatError
        torch has no such data type.
    """
    import torch

    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    plain = np.array(little, order="C")  # also what is read-only or mapped
    dtype = getattr(torch, plain.dtype.name, None)
    if not isinstance(dtype, torch.dtype):
        raise FormatError(
            f"torch has no data type {plain.dtype.name!r}", remedy="Upgrade torch, or use .npy"
        )
    if not is_low_precision(plain.dtype):
        return torch.from_numpy(plain)
    codes = torch.from_numpy(plain.view(f"i{plain.itemsize}"))
    return codes.view(dtype)
