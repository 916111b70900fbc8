"""Every kind of torch tensor has a stored form that gives its values back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from msprobe_nb.errors import TensorReadError
from msprobe_nb.formats import open_run
from msprobe_nb.formats.torch_values import encode, to_array
from msprobe_nb.store import RunWriter
from msprobe_nb.store.rows import COMPONENT

# Torch says of these kinds of tensors that they are young.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def store_and_read(tmp_path, tensor: torch.Tensor) -> np.ndarray:
    """Write a tensor in its stored form, read its values back."""
    found = encode(tensor)
    with RunWriter(tmp_path / "r.zarr").pack(0, 0) as pack:
        node = pack.add_node("Torch.x.0.forward")
        pack.add(
            node, "output.0", found.array, dtype=found.dtype, shape=found.shape, detail=found.detail
        )
        for name, part in found.components.items():
            pack.add(node, f"output.0#{name}", part, kind=COMPONENT)
        pack.add(node, "output.1", np.ones(1))
    run = open_run(tmp_path / "r.zarr")
    assert run.pack().index.name == [f"Torch.x.0.forward.output.{at}" for at in (0, 1)]
    return run["Torch.x.0.forward.output.0"].values


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8),
        *(torch.uint8, torch.bool, torch.complex64, torch.uint16, torch.float8_e4m3fn),
        torch.float8_e5m2,
    ],
)
def test_dense_tensors_of_every_dtype(tmp_path, dtype):
    tensor = torch.arange(12).reshape(3, 4).to(torch.float32).to(dtype)
    found = store_and_read(tmp_path, tensor)
    assert found.tobytes() == tensor.contiguous().view(torch.uint8).numpy().tobytes()
    assert found.shape == (3, 4)


def test_views_are_stored_as_they_look(tmp_path):
    tensor = torch.arange(12.0).reshape(3, 4).t()[1:]
    assert (store_and_read(tmp_path, tensor) == tensor.numpy()).all()


def test_conjugate_views_are_resolved(tmp_path):
    tensor = torch.tensor([1 + 2j]).conj()
    assert store_and_read(tmp_path, tensor)[0] == 1 - 2j


def test_bfloat16_keeps_its_type():
    array = to_array(torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert array.dtype == ml_dtypes.bfloat16
    assert array.astype(np.float32).tolist() == [1.5, -2.0]


def test_quantised_per_tensor(tmp_path):
    values = torch.tensor([[-1.0, 0.0], [0.5, 2.0]])
    tensor = torch.quantize_per_tensor(values, 0.5, 3, torch.quint8)
    assert np.allclose(store_and_read(tmp_path, tensor), tensor.dequantize().numpy())


def test_quantised_per_channel(tmp_path):
    values = torch.tensor([[-1.0, 0.0], [0.5, 2.0]])
    scales, zeros = torch.tensor([0.5, 0.25]), torch.tensor([0, 1])
    tensor = torch.quantize_per_channel(values, scales, zeros, 0, torch.qint8)
    assert np.allclose(store_and_read(tmp_path, tensor), tensor.dequantize().numpy())


def test_sparse_coo(tmp_path):
    tensor = torch.sparse_coo_tensor([[0, 2, 0], [1, 0, 1]], [1.0, 2.0, 5.0], (3, 2))
    assert (store_and_read(tmp_path, tensor) == tensor.to_dense().numpy()).all()


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_compressed_sparse(tmp_path, layout):
    dense = torch.zeros(4, 6)
    dense[0, 1], dense[3, 4], dense[2, 0] = 1.0, 2.0, 3.0
    tensor = getattr(dense, f"to_sparse_{layout}")(*([(2, 3)] if layout[0] == "b" else []))
    assert (store_and_read(tmp_path, tensor) == dense.numpy()).all()


def test_nested_is_padded_with_zeros(tmp_path):
    tensor = torch.nested.nested_tensor([torch.ones(2, 3), torch.full((1, 2), 5.0)])
    found = store_and_read(tmp_path, tensor)
    assert found.shape == (2, 2, 3)
    assert found[0].sum() == 6
    assert found[1].tolist() == [[5, 5, 0], [0, 0, 0]]


def test_meta_and_fake_tensors_have_no_values(tmp_path):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(2, 3)
    for at, tensor in enumerate((torch.empty(2, 3, device="meta"), fake)):
        assert encode(tensor).shape == (2, 3)
        with pytest.raises(TensorReadError, match="no values"):
            store_and_read(tmp_path / str(at), tensor)


def test_dtensor_stores_the_local_shard_and_its_placement(tmp_path):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/join", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        tensor = distribute_tensor(torch.arange(6.0).reshape(2, 3), mesh, [Shard(0)])
        found = encode(tensor)
        assert found.detail["placements"] == [{"Shard": {"dim": 0}}]
        assert found.detail["device_mesh"] == [0]
        assert (store_and_read(tmp_path, tensor) == np.arange(6.0).reshape(2, 3)).all()
    finally:
        dist.destroy_process_group()
