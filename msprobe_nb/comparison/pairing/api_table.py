"""MindSpore API names and what PyTorch calls them: the table behind ``api_mapping=True``.

Names are the first two components of a recorded name. APIs of ``mint`` carry PyTorch's names;
``Tensor`` methods keep their name unless listed; names that are not listed stay as they are.
Facts: behaviour of MindStudio Probe 26.2.0 (specification 02, appendix A).
"""

from __future__ import annotations

PREFIXES = {"Mint": "Torch", "MintFunctional": "Functional"}

# Functional.x is Torch.x
_TORCH = """
abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv angle arange arccos arccosh arcsinh
arctan arctanh argmax asin asinh atan atan2 atanh baddbmm bartlett_window bincount bitwise_and
bitwise_or bitwise_xor blackman_window ceil cholesky_solve clamp clip column_stack conj cosh cross
cumprod diag_embed diagflat diagonal digamma dist div divide einsum erf erfc exp exp2 expm1 eye flip
fliplr flipud floor_divide fmax fmod full full_like gcd geqrf greater greater_equal hamming_window
hann_window heaviside histc hsplit hstack hypot i0 igamma igammac imag inner inverse is_nonzero
is_tensor isinf isneginf isposinf isreal kaiser_window kron lcm lerp log1p logaddexp logaddexp2
logdet logical_and logical_not logical_or logical_xor logit logspace lt lu_solve lu_unpack
masked_select matmul mm moveaxis movedim msort mul multiply nan_to_num nansum neg negative nextafter
nonzero not_equal numel ones_like orgqr outer permute polar pow rand rand_like randn randn_like
ravel real reciprocal remainder reshape roll rot90 round row_stack rsqrt searchsorted sgn sign
signbit sin sinc sinh slogdet square subtract sum swapdims t tan topk trace trapz tril tril_indices
triu_indices true_divide trunc unbind unsqueeze vander view_as_real vsplit where xlogy zeros_like
"""
_RENAMED = {
    "Functional.bidense": "Functional.bilinear",
    "Functional.dense": "Functional.linear",
    "Functional.equal": "Torch.eq",
    "Functional.swapaxes": "Torch.transpose",
    "Tensor.asnumpy": "Tensor.numpy",
    "Tensor.cauchy": "Tensor.cauchy_",
    "Tensor.equal": "Tensor.eq",
    "Tensor.fill_diagonal": "Tensor.fill_diagonal_",
    "Tensor.gather_elements": "Tensor.gather",
    "Tensor.swapaxes": "Tensor.transpose",
}
APIS = {f"Functional.{name}": f"Torch.{name}" for name in _TORCH.split()} | _RENAMED
