"""The faults, and what a good answer to each is.

``TUNING`` was looked at while the rules were written. ``FIRST_CONFIRMING`` was counted once, then
looked at; ``CONFIRMING`` was written after the last change of the rules. ``docs/evidence.md`` has
the figures.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from models import MODELS, Flawed
from torch import Tensor


@dataclass(frozen=True)
class Fault:
    """One way to break a model.

    Attributes
    ----------
    name : str
    model : str
        Key of ``MODELS``.
    inject : callable
        Changes the model, and returns the data (inputs, labels) and the factor of the loss.
    culprit : str
        Pattern of the names of calls that are right answers, the first origin must be one.
    kinds : tuple of str
        Right kinds.
    """

    name: str
    model: str
    inject: Callable[[Flawed, dict[str, Any]], None]
    culprit: str
    kinds: tuple[str, ...]

    @property
    def folder(self) -> str:
        """A name for its recording that the official tool accepts."""
        return re.sub(r"\W+", "_", f"{self.model} {self.name}")

    def found_by(self, node: str, kind: str) -> bool:
        return re.search(self.culprit, node) is not None and kind in self.kinds


def data_of(model: str) -> dict[str, Any]:
    """Inputs, labels and the factor of the loss of a healthy step."""
    generator = torch.Generator().manual_seed(11)
    if model == "conv":
        inputs = torch.randn(4, 3, 16, 16, generator=generator)
        return {"inputs": inputs, "labels": torch.tensor([1, 7, 3, 3]), "factor": None}
    ids = torch.randint(0, 60, (3, 9), generator=generator)
    return {"inputs": ids[:, :-1], "labels": ids[:, 1:].reshape(-1), "factor": None}


def build(model: str) -> Flawed:
    """A healthy model."""
    torch.manual_seed(5)
    made = MODELS[model]()
    assert isinstance(made, Flawed)
    return made


# ---------------------------------------------------------------- ways to break things


def code(where: str, fault: str) -> Callable[[Flawed, dict[str, Any]], None]:
    return lambda model, data: model.break_at(where, fault)


def weight(name: str, change: Callable[[Tensor], None]) -> Callable[[Flawed, dict[str, Any]], None]:
    def inject(model: Flawed, data: dict[str, Any]) -> None:
        values = dict(model.named_parameters()) | dict(model.named_buffers())
        with torch.no_grad():
            change(values[name])

    return inject


def scale(factor: float) -> Callable[[Tensor], None]:
    return lambda values: values.mul_(factor)


def element(*at: int, by: float) -> Callable[[Tensor], None]:
    def change(values: Tensor) -> None:
        values[at] += by

    return change


def attribute(where: str, name: str, value: Any) -> Callable[[Flawed, dict[str, Any]], None]:
    return lambda model, data: setattr(model.get_submodule(where), name, value)


def datum(name: str, change: Callable[[Any], Any]) -> Callable[[Flawed, dict[str, Any]], None]:
    def inject(model: Flawed, data: dict[str, Any]) -> None:
        data[name] = change(data[name])

    return inject


def put(values: Tensor, at: tuple[int, ...], value: float) -> Tensor:
    changed = values.clone()
    changed[at] = value
    return changed


def gradient(name: str, factor: float) -> Callable[[Flawed, dict[str, Any]], None]:
    def inject(model: Flawed, data: dict[str, Any]) -> None:
        dict(model.named_parameters())[name].register_hook(lambda grad: grad * factor)

    return inject


def low_precision(where: str) -> Callable[[Flawed, dict[str, Any]], None]:
    def inject(model: Flawed, data: dict[str, Any]) -> None:
        module = model.get_submodule(where).bfloat16()
        module.register_forward_pre_hook(lambda module, args: args[0].bfloat16())
        module.register_forward_hook(lambda module, args, out: out.float())

    return inject


def evaluation(where: str) -> Callable[[Flawed, dict[str, Any]], None]:
    return lambda model, data: model.get_submodule(where).eval()


PARAMETER, OUTPUT = ("parameter",), ("output",)
EXTRA = ("unmatched", "input", "output")
UNSEEN = ("input", "output")  # statistics do not change when values trade places

TUNING = [
    # a convolutional network
    Fault(
        "conv weight scaled",
        "conv",
        weight("blocks.0.conv2.weight", scale(1.01)),
        r"blocks\.0\.conv2",
        PARAMETER,
    ),
    Fault(
        "one element of a kernel",
        "conv",
        weight("stem.weight", element(3, 1, 0, 2, by=0.02)),
        r"stem",
        PARAMETER,
    ),
    Fault(
        "batch norm bias",
        "conv",
        weight("blocks.1.bn1.bias", element(5, by=0.1)),
        r"blocks\.1\.bn1",
        PARAMETER,
    ),
    Fault(
        "batch norm eps",
        "conv",
        attribute("blocks.0.bn1", "eps", 1e-2),
        r"blocks\.0\.bn1|batch_norm\.1",
        ("argument",),
    ),
    Fault("average pooling", "conv", code("", "average instead of max pooling"), r"pool2d", EXTRA),
    Fault("residual scaled", "conv", code("blocks.1", "residual scaled"), r"Torch\.mul\.0", EXTRA),
    Fault(
        "residual missing", "conv", code("blocks.1", "residual missing"), r"Torch\.add\.1", EXTRA
    ),
    Fault(
        "exploding exponential",
        "conv",
        code("", "logits overflow"),
        r"Torch\.exp\.0",
        ("overflow", "unmatched"),
    ),
    Fault("image scaled", "conv", code("", "input not normalised"), r"Tensor\.__mul__\.0", EXTRA),
    Fault(
        "one pixel of an image",
        "conv",
        datum("inputs", lambda x: put(x, (1, 2, 5, 5), 4.0)),
        r"stem|conv2d\.0",
        ("input",),
    ),
    Fault(
        "loss scaled",
        "conv",
        datum("factor", lambda _: 1.5),
        r"__mul__|cross_entropy",
        (*EXTRA, "gradient"),
    ),
    # an encoder
    Fault(
        "feed-forward weight scaled",
        "encoder",
        weight("layers.1.fc1.weight", scale(1.02)),
        r"layers\.1\.fc1",
        PARAMETER,
    ),
    Fault(
        "one element of a query weight",
        "encoder",
        weight("layers.0.attention.query.weight", element(7, 3, by=0.05)),
        r"layers\.0\.attention\.query",
        PARAMETER,
    ),
    Fault(
        "layer norm eps",
        "encoder",
        attribute("layers.2.norm1", "eps", 1e-2),
        r"layers\.2\.norm1|layer_norm\.5",
        ("argument",),
    ),
    Fault(
        "gelu approximated",
        "encoder",
        code("layers.1", "gelu approximated"),
        r"gelu\.1",
        ("argument",),
    ),
    Fault("extra activation", "encoder", code("layers.2", "extra activation"), r"relu\.0", EXTRA),
    Fault(
        "scale missing",
        "encoder",
        code("layers.1.attention", "scale missing"),
        r"__truediv__\.1",
        EXTRA,
    ),
    Fault(
        "wrong scale",
        "encoder",
        code("layers.0.attention", "wrong scale"),
        r"__truediv__\.0",
        ("argument",),
    ),
    Fault(
        "softmax over the wrong axis",
        "encoder",
        code("layers.1.attention", "softmax over the wrong axis"),
        r"softmax\.1",
        ("argument",),
    ),
    Fault(
        "attention in bfloat16",
        "encoder",
        code("layers.2.attention", "attention weights in bfloat16"),
        r"matmul\.5",
        ("dtype",),
    ),
    Fault(
        "unseen scaling",
        "encoder",
        code("layers.0", "unseen scaling"),
        r"linear\.5\.forward|layers\.0\.fc2",
        ("input", "output"),
    ),
    Fault(
        "gradient scaled",
        "encoder",
        code("layers.1", "gradient scaled"),
        r"Tensor\.__mul__\.0|layers\.1\.fc2.*backward|linear\.11\.backward",
        ("unmatched", "gradient"),
    ),
    Fault(
        "positions shifted",
        "encoder",
        code("", "positions shifted"),
        r"embedding\.1|places|Tensor\.__add__\.0",
        EXTRA,
    ),
    Fault(
        "mask too long", "encoder", code("", "mask too long"), r"Tensor\.__(add|setitem)__", EXTRA
    ),
    # a decoder with rotary positions and grouped-query attention
    Fault(
        "key weight scaled",
        "decoder",
        weight("layers.1.attn.k_proj.weight", scale(0.97)),
        r"layers\.1\.attn\.k_proj",
        PARAMETER,
    ),
    Fault(
        "one element of an embedding",
        "decoder",
        weight("embed.weight", element(17, 9, by=0.3)),
        r"embed",
        PARAMETER,
    ),
    Fault(
        "rms norm eps",
        "decoder",
        attribute("layers.0.post_norm", "eps", 1e-2),
        r"__add__|post_norm",
        ("argument",),
    ),
    Fault(
        "rotary base",
        "decoder",
        code("", "rotary base"),
        r"outer|mul\.|pow|cos|__r?pow__",
        (*EXTRA, "argument"),
    ),
    Fault(
        "rotary positions shifted",
        "decoder",
        code("", "rotary positions shifted"),
        r"outer|__add__|cos",
        (*EXTRA, "argument"),
    ),
    Fault(
        "rotation of keys reversed",
        "decoder",
        code("layers.1.attn", "rotation of keys reversed"),
        r"(cat|Torch\.mul|__neg__|Torch\.neg)\.",
        EXTRA,
    ),
    Fault(
        "gelu instead of silu",
        "decoder",
        code("layers.2.mlp", "gelu instead of silu"),
        r"gelu\.0|silu\.2",
        EXTRA,
    ),
    Fault(
        "embedding scaled", "decoder", code("", "embedding scaled"), r"Tensor\.__mul__\.0", EXTRA
    ),
    Fault(
        "gradient cut in half",
        "decoder",
        code("layers.1", "gradient cut in half"),
        r"Tensor\.__truediv__|layers\.1\.mlp.*backward|linear\.13\.backward",
        ("unmatched", "gradient"),
    ),
    Fault(
        "weight gradient scaled",
        "decoder",
        gradient("layers.0.mlp.up_proj.weight", 1.3),
        r"layers\.0\.mlp\.up_proj",
        ("gradient",),
    ),
    # a mixture of experts
    Fault(
        "router weight",
        "experts",
        weight("layers.0.moe.router.weight", element(2, 4, by=0.2)),
        r"layers\.0\.moe\.router",
        PARAMETER,
    ),
    Fault(
        "expert weight",
        "experts",
        weight("layers.1.moe.experts.3.down_proj.weight", scale(1.05)),
        r"layers\.1\.moe\.experts\.3\.down_proj",
        PARAMETER,
    ),
    Fault(
        "one expert less",
        "experts",
        code("layers.1.moe", "one expert less"),
        r"topk\.1",
        ("argument", "shape"),
    ),
    Fault(
        "weights not normalised",
        "experts",
        code("layers.0.moe", "weights not normalised"),
        r"Torch\.(div|sum)\.0",
        EXTRA,
    ),
    Fault(
        "expert output doubled",
        "experts",
        code("layers.1.moe", "expert output doubled"),
        r"Torch\.mul\.",
        EXTRA,
    ),
    Fault(
        "infinite logits",
        "experts",
        code("", "infinite logits"),
        r"Torch\.div\.2",
        ("overflow", "unmatched"),
    ),
]

FIRST_CONFIRMING = [
    Fault(
        "classifier bias",
        "conv",
        weight("fc.bias", element(4, by=0.2)),
        r"\bfc\b|linear\.0",
        PARAMETER,
    ),
    Fault(
        "kernels negated",
        "conv",
        weight("blocks.1.conv1.weight", scale(-1.0)),
        r"blocks\.1\.conv1",
        PARAMETER,
    ),
    Fault(
        "batch norm in evaluation mode",
        "conv",
        evaluation("blocks.0.bn2"),
        r"blocks\.0\.bn2|batch_norm\.2",
        ("argument",),
    ),
    Fault("pooling keyword", "conv", code("", "pooling keyword"), r"pool2d", ("argument",)),
    Fault(
        "leaky activation", "conv", code("", "leaky activation"), r"leaky_relu\.0|__sub__\.0", EXTRA
    ),
    Fault(
        "dropped precision",
        "conv",
        code("", "dropped precision"),
        r"linear\.0|\bfc\b",
        ("input", "dtype"),
    ),
    Fault("labels swapped", "conv", datum("labels", lambda x: x.flip(0)), r"cross_entropy", UNSEEN),
    Fault(
        "layer norm weight",
        "encoder",
        weight("layers.2.norm2.weight", element(3, by=0.5)),
        r"layers\.2\.norm2",
        PARAMETER,
    ),
    Fault(
        "output bias",
        "encoder",
        weight("layers.1.attention.out.bias", element(0, by=-0.4)),
        r"layers\.1\.attention\.out",
        PARAMETER,
    ),
    Fault(
        "gelu approximated in the last layer",
        "encoder",
        code("layers.2", "gelu approximated"),
        r"gelu\.2",
        ("argument",),
    ),
    Fault(
        "linear layer in bfloat16",
        "encoder",
        low_precision("layers.1.fc2"),
        r"layers\.1\.fc2|linear\.11",
        ("dtype",),
    ),
    Fault(
        "one token",
        "encoder",
        datum("inputs", lambda x: put(x, (0, 2), 5)),
        r"embedding\.0|words",
        UNSEEN,
    ),
    Fault(
        "unseen scaling in the last layer",
        "encoder",
        code("layers.2", "unseen scaling"),
        r"linear\.17\.forward|layers\.2\.fc2",
        ("input", "output"),
    ),
    Fault(
        "loss halved",
        "encoder",
        datum("factor", lambda _: 0.5),
        r"__mul__|cross_entropy",
        (*EXTRA, "gradient"),
    ),
    Fault(
        "value weight",
        "decoder",
        weight("layers.2.attn.v_proj.weight", element(1, 1, by=0.1)),
        r"layers\.2\.attn\.v_proj",
        PARAMETER,
    ),
    Fault(
        "final norm weight",
        "decoder",
        weight("norm.weight", scale(1.001)),
        r"norm|Torch\.mul",
        PARAMETER,
    ),
    Fault(
        "heads repeated in the wrong order",
        "decoder",
        code("layers.0.attn", "heads repeated in the wrong order"),
        r"matmul\.0",  # neither way to repeat is recorded
        EXTRA,
    ),
    Fault(
        "mask looks ahead",
        "decoder",
        code("", "mask looks ahead"),
        r"triu|Tensor\.__add__",
        (*EXTRA, "argument"),
    ),
    Fault(
        "logits soft-capped",
        "decoder",
        code("", "logits soft-capped"),
        r"__truediv__\.1|tanh\.0",
        EXTRA,
    ),
    Fault("embedding gradient", "decoder", gradient("embed.weight", 0.5), r"embed", ("gradient",)),
    Fault(
        "router in bfloat16",
        "experts",
        code("layers.1.moe", "router in bfloat16"),
        r"softmax",
        ("dtype",),
    ),
    Fault(
        "attention scale of a layer",
        "experts",
        code("layers.1.attention", "wrong scale"),
        r"__truediv__\.1",
        ("argument",),
    ),
    Fault(
        "expert gate",
        "experts",
        weight("layers.0.moe.experts.0.gate_proj.weight", scale(0.5)),
        r"layers\.0\.moe\.experts\.0\.gate_proj",
        PARAMETER,
    ),
    Fault(
        "head weight", "experts", weight("head.weight", element(30, 2, by=0.15)), r"head", PARAMETER
    ),
]


def several(
    *injections: Callable[[Flawed, dict[str, Any]], None],
) -> Callable[[Flawed, dict[str, Any]], None]:
    def inject(model: Flawed, data: dict[str, Any]) -> None:
        for one in injections:
            one(model, data)

    return inject


def replaced(
    name: str, new: Callable[[Tensor], Tensor]
) -> Callable[[Flawed, dict[str, Any]], None]:
    return weight(name, lambda values: values.copy_(new(values).clone()))


CHANGED = ("parameter", "output")  # a permuted weight has the same statistics

CONFIRMING = [
    Fault(
        "channels of the stem reversed",
        "conv",
        replaced("stem.weight", lambda w: w.flip(1)),
        r"stem|conv2d\.0",
        CHANGED,
    ),
    Fault(
        "batch norm weight zeroed",
        "conv",
        weight("bn.weight", element(7, by=-1.0)),
        r"Module\.bn\.|batch_norm\.0",
        PARAMETER,
    ),
    Fault("classifier without bias", "conv", weight("fc.bias", scale(0.0)), r"\bfc\b", PARAMETER),
    Fault(
        "dilated convolution",
        "conv",
        several(
            attribute("blocks.1.conv2", "dilation", (2, 2)),
            attribute("blocks.1.conv2", "padding", (2, 2)),
        ),
        r"blocks\.1\.conv2|conv2d\.4",
        ("argument",),
    ),
    Fault(
        "batch norm momentum",
        "conv",
        attribute("blocks.0.bn1", "momentum", 0.5),
        r"blocks\.0\.bn1|batch_norm\.1",
        ("argument",),
    ),
    Fault(
        "residual missing early",
        "conv",
        code("blocks.0", "residual missing"),
        r"Torch\.add\.0",
        EXTRA,
    ),
    Fault(
        "small kernel change",
        "conv",
        weight("blocks.0.conv1.weight", scale(1.0005)),
        r"blocks\.0\.conv1",
        PARAMETER,
    ),
    Fault(
        "one image darker",
        "conv",
        datum("inputs", lambda x: put(x, (3,), 0.0)),
        r"stem|conv2d\.0",
        UNSEEN,
    ),
    Fault(
        "word vector scaled",
        "encoder",
        weight("words.weight", lambda w: w[4:9].mul_(1.5)),
        r"words|embedding\.0",
        PARAMETER,
    ),
    Fault(
        "layer norm bias",
        "encoder",
        weight("layers.0.norm2.bias", element(2, by=0.05)),
        r"layers\.0\.norm2",
        PARAMETER,
    ),
    Fault(
        "heads halved",
        "encoder",
        attribute("layers.1.attention", "heads", 2),
        r"matmul\.2|layers\.1\.attention",
        ("shape", "input", "argument"),
    ),
    Fault(
        "word gradient scaled", "encoder", gradient("words.weight", 3.0), r"words", ("gradient",)
    ),
    Fault(
        "layer norm eps made smaller",
        "encoder",
        attribute("layers.1.norm1", "eps", 1e-6),
        r"layers\.1\.norm1|layer_norm\.3",
        ("argument",),
    ),
    Fault(
        "unseen scaling in the middle",
        "encoder",
        code("layers.1", "unseen scaling"),
        r"linear\.11\.forward|layers\.1\.fc2",
        UNSEEN,
    ),
    Fault(
        "softmax over the wrong axis at the end",
        "encoder",
        code("layers.2.attention", "softmax over the wrong axis"),
        r"softmax\.2",
        ("argument",),
    ),
    Fault(
        "attention in bfloat16 at the start",
        "encoder",
        code("layers.0.attention", "attention weights in bfloat16"),
        r"matmul\.1",
        ("dtype",),
    ),
    Fault(
        "value bias",
        "encoder",
        weight("layers.2.attention.value.bias", element(9, by=0.3)),
        r"layers\.2\.attention\.value",
        PARAMETER,
    ),
    Fault(
        "gelu instead of silu at the start",
        "decoder",
        code("layers.0.mlp", "gelu instead of silu"),
        r"gelu\.0|silu\.0",
        EXTRA,
    ),
    Fault(
        "rms norm weight",
        "decoder",
        weight("layers.1.post_norm.weight", element(20, by=0.2)),
        r"layers\.1\.post_norm|Torch\.mul",
        PARAMETER,
    ),
    Fault(
        "output projection transposed",
        "decoder",
        replaced("layers.0.attn.o_proj.weight", lambda w: w.T),
        r"layers\.0\.attn\.o_proj|linear\.3\.",
        CHANGED,
    ),
    Fault("head scaled", "decoder", weight("lm_head.weight", scale(1.001)), r"lm_head", PARAMETER),
    Fault(
        "rotation of keys reversed at the end",
        "decoder",
        code("layers.2.attn", "rotation of keys reversed"),
        r"Torch\.(mul|cat)|__neg__",
        EXTRA,
    ),
    Fault(
        "gradient cut in half at the end",
        "decoder",
        code("layers.2", "gradient cut in half"),
        r"__truediv__|linear\..*backward|mlp.*backward",
        ("unmatched", "gradient"),
    ),
    Fault(
        "one token of a prompt",
        "decoder",
        datum("inputs", lambda x: put(x, (2, 3), 59)),
        r"embedding\.0|embed",
        UNSEEN,
    ),
    Fault(
        "loss scaled a little",
        "decoder",
        datum("factor", lambda _: 1.001),
        r"__mul__|cross_entropy",
        (*EXTRA, "gradient"),
    ),
    Fault(
        "weights not normalised at the end",
        "experts",
        code("layers.1.moe", "weights not normalised"),
        r"Torch\.(div|sum|where)\.",
        EXTRA,
    ),
    Fault(
        "expert output doubled at the start",
        "experts",
        code("layers.0.moe", "expert output doubled"),
        r"Torch\.mul\.",
        EXTRA,
    ),
    Fault(
        "router negated",
        "experts",
        weight("layers.1.moe.router.weight", scale(-1.0)),
        r"layers\.1\.moe\.router",
        PARAMETER,
    ),
    Fault(
        "scale missing in a layer",
        "experts",
        code("layers.0.attention", "scale missing"),
        r"__truediv__\.0",
        EXTRA,
    ),
    Fault(
        "one element of an expert",
        "experts",
        weight("layers.0.moe.experts.2.up_proj.weight", element(40, 11, by=0.1)),
        r"layers\.0\.moe\.experts\.2\.up_proj",
        PARAMETER,
    ),
    Fault(
        "first router in bfloat16",
        "experts",
        code("layers.0.moe", "router in bfloat16"),
        r"softmax",
        ("dtype",),
    ),
    Fault(
        "layer norm eps of experts",
        "experts",
        attribute("layers.1.norm2", "eps", 1e-3),
        r"layers\.1\.norm2|layer_norm\.3",
        ("argument",),
    ),
    Fault(
        "last norm bias",
        "experts",
        weight("norm.bias", element(1, by=0.02)),
        r"Module\.norm\.|layer_norm\.4",
        PARAMETER,
    ),
]
