"""Four small models with switches that break them.

A fault has a name and a place: ``model.break_at("layers.1", "gelu approximated")`` breaks one
module of the forward pass. What needs no change of a model (weights, inputs, dtypes, hooks) is in
``faults.py``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Flawed(nn.Module):
    """A model that knows which fault it has."""

    fault = ""

    def has(self, name: str) -> bool:
        return self.fault == name

    def break_at(self, where: str, fault: str) -> None:
        module = self.get_submodule(where)
        assert isinstance(module, Flawed)
        module.fault = fault


class Unrecorded(torch.autograd.Function):
    """Scales a value by an operator that no recorder sees."""

    @staticmethod
    def forward(ctx, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return torch.from_numpy(x.detach().numpy() * factor)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return torch.from_numpy(grad.numpy() * ctx.factor), None


# ---------------------------------------------------------------- convolutional network


class Residual(Flawed):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.has("residual missing"):
            return F.relu(y)
        if self.has("residual scaled"):
            x = torch.mul(x, 0.9)
        return F.relu(torch.add(x, y))


class ConvNet(Flawed):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.bn = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList([Residual(width) for _ in range(2)])
        self.fc = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        if self.has("input not normalised"):
            x = x * 1.25
        x = F.relu(self.bn(self.stem(x)))
        if self.has("average instead of max pooling"):
            x = F.avg_pool2d(x, 2)
        else:
            x = F.max_pool2d(x, 2, ceil_mode=self.has("pooling keyword"))
        for at, block in enumerate(self.blocks):
            x = block(x)
            if at == 0 and self.has("leaky activation"):
                x = F.leaky_relu(x - 0.5, 0.2)
        x = torch.mean(x, (2, 3))
        if self.has("logits overflow"):
            x = torch.exp(x * 200)
        if self.has("dropped precision"):
            x = x.to(torch.bfloat16).float()
        return self.fc(x)


# ---------------------------------------------------------------- encoder


class Attention(Flawed):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        b, s, w = x.shape
        return x.view(b, s, self.heads, w // self.heads).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2))
        if not self.has("scale missing"):
            scores = scores / (8.0 if self.has("wrong scale") else (q.shape[-1] ** 0.5))
        scores = scores + mask
        if self.has("softmax over the wrong axis"):
            weights = F.softmax(scores, dim=-2)
        else:
            weights = F.softmax(scores, dim=-1)
        if self.has("attention weights in bfloat16"):
            mixed = torch.matmul(weights.bfloat16(), v.bfloat16()).float()
        else:
            mixed = torch.matmul(weights, v)
        b, h, s, d = mixed.shape
        return self.out(mixed.transpose(1, 2).reshape(b, s, h * d))


class EncoderLayer(Flawed):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, mask))
        y = self.fc1(x)
        y = F.gelu(y, approximate="tanh" if self.has("gelu approximated") else "none")
        if self.has("extra activation"):
            y = F.relu(y)
        if self.has("unseen scaling"):
            y = Unrecorded.apply(y, 1.03)
        y = self.fc2(y)
        if self.has("gradient scaled"):
            y.register_hook(lambda grad: grad * 1.5)
        return self.norm2(x + y)


class Encoder(Flawed):
    def __init__(self, width: int = 32, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(60, width), nn.Embedding(16, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([EncoderLayer(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, 60)

    def forward(self, ids: Tensor) -> Tensor:
        place = torch.arange(ids.shape[1])
        if self.has("positions shifted"):
            place = place + 1
        x = self.norm(self.words(ids) + self.places(place))
        mask = torch.zeros(ids.shape[0], 1, 1, ids.shape[1])
        mask[:, :, :, -2:] = -1e4
        if self.has("mask too long"):
            mask[:, :, :, -3:] = -1e4
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


# ---------------------------------------------------------------- decoder


class RMSNorm(Flawed):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        square = torch.mean(torch.pow(x, 2), -1, keepdim=True)
        return torch.mul(x * torch.rsqrt(square + self.eps), self.weight)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, wrong: bool) -> Tensor:
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    turned = torch.cat((b, -a) if wrong else (-b, a), dim=-1)
    return torch.mul(x, cos) + torch.mul(turned, sin)


class GroupedAttention(Flawed):
    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, groups * self.size, bias=False)
        self.v_proj = nn.Linear(width, groups * self.size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        b, s, _ = x.shape
        q = self.q_proj(x).view(b, s, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(b, s, self.groups, self.size).transpose(1, 2)
        v = self.v_proj(x).view(b, s, self.groups, self.size).transpose(1, 2)
        q = rotate(q, cos, sin, False)
        k = rotate(k, cos, sin, self.has("rotation of keys reversed"))
        times = self.heads // self.groups
        if self.has("heads repeated in the wrong order"):
            k, v = k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1)
        else:
            k, v = (torch.repeat_interleave(t, times, dim=1) for t in (k, v))
        scores = torch.matmul(q, k.transpose(-1, -2)) * self.size**-0.5 + mask
        mixed = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.o_proj(mixed.transpose(1, 2).reshape(b, s, -1))


class SwiGLU(Flawed):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, 2 * width, bias=False)
        self.up_proj = nn.Linear(width, 2 * width, bias=False)
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj(x)
        gate = F.gelu(gate) if self.has("gelu instead of silu") else F.silu(gate)
        return self.down_proj(torch.mul(gate, self.up_proj(x)))


class DecoderLayer(Flawed):
    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.input_norm, self.post_norm = RMSNorm(width), RMSNorm(width)
        self.attn = GroupedAttention(width, heads, groups)
        self.mlp = SwiGLU(width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = torch.add(x, self.attn(self.input_norm(x), cos, sin, mask))
        y = self.mlp(self.post_norm(x))
        if self.has("gradient cut in half"):
            y.register_hook(lambda grad: grad / 2)
        return torch.add(x, y)


class Decoder(Flawed):
    def __init__(self, width: int = 32, heads: int = 4, groups: int = 2, layers: int = 3) -> None:
        super().__init__()
        self.size = width // heads
        self.embed = nn.Embedding(60, width)
        self.layers = nn.ModuleList([DecoderLayer(width, heads, groups) for _ in range(layers)])
        self.norm = RMSNorm(width)
        self.lm_head = nn.Linear(width, 60, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        s = ids.shape[1]
        base = 1000.0 if self.has("rotary base") else 10000.0
        step = base ** (-torch.arange(0, self.size, 2).float() / self.size)
        place = torch.arange(s).float() + (1 if self.has("rotary positions shifted") else 0)
        angle = torch.outer(place, step)
        angle = torch.cat((angle, angle), dim=-1)
        cos, sin = torch.cos(angle), torch.sin(angle)
        ahead = 2 if self.has("mask looks ahead") else 1
        mask = torch.full((s, s), -1e4).triu(ahead)
        x = self.embed(ids)
        if self.has("embedding scaled"):
            x = x * 1.1
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        x = self.norm(x)
        if self.has("logits soft-capped"):
            return torch.tanh(self.lm_head(x) / 3.0) * 3.0
        return self.lm_head(x)


# ---------------------------------------------------------------- mixture of experts


class Experts(Flawed):
    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList([SwiGLU(width) for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        logits = self.router(flat)
        if self.has("router in bfloat16"):
            chance = F.softmax(logits.bfloat16(), dim=-1).float()
        else:
            chance = F.softmax(logits, dim=-1)
        weight, chosen = torch.topk(chance, 1 if self.has("one expert less") else 2, dim=-1)
        if not self.has("weights not normalised"):
            weight = torch.div(weight, torch.sum(weight, -1, keepdim=True))
        out = torch.zeros_like(flat)
        for at, expert in enumerate(self.experts):
            share = torch.sum(torch.where(chosen == at, weight, 0.0), -1, keepdim=True)
            y = expert(flat)
            if at == 1 and self.has("expert output doubled"):
                y = torch.mul(y, 2.0)
            out = torch.add(out, y * share)
        return out.view_as(x)


class MoELayer(Flawed):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.moe = Experts(width, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.moe(self.norm2(x))


class MixtureOfExperts(Flawed):
    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(60, width)
        self.layers = nn.ModuleList([MoELayer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 60)

    def forward(self, ids: Tensor) -> Tensor:
        mask = torch.full((ids.shape[1], ids.shape[1]), -1e4).triu(1)
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, mask)
        if self.has("infinite logits"):
            x = torch.div(x, torch.zeros_like(x[..., :1]))
        return self.head(self.norm(x))


MODELS = {
    "conv": ConvNet,
    "encoder": Encoder,
    "decoder": Decoder,
    "experts": MixtureOfExperts,
}
