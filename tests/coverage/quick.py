"""The fixed part of the coverage that ``make test`` runs: a few entries of every family.

Chosen for breadth at little cost: none takes more than a few seconds. Everything else is in
the full run.
"""

from __future__ import annotations

OPERATORS: dict[str, str] = {
    "arithmetic": "add sub mul div.floor_rounding remainder addcmul lerp float_power",
    "comparison": "eq maximum where isclose clamp_min",
    "functions": "exp log1p tanh sigmoid erfinv digamma atan2 special.xlog1py",
    "activations": "nn.functional.gelu nn.functional.silu nn.functional.threshold softmax",
    "reductions": "amax argmin logsumexp var_mean prod",
    "scans and orders": "cumsum cummax topk msort median",
    "products": "mm addmm addbmm einsum outer",
    "shapes": "cat split permute_copy roll tril diag_embed unfold constant_pad_nd",
    "indices": "take_along_dim index_put scatter_add index_fill masked_select",
    "linear algebra": "linalg.det linalg.solve linalg.matrix_power cholesky_solve",
    "Fourier transforms": "fft.rfft fft.ifft2",
    "convolution and pooling": (
        "nn.functional.conv_transpose1d nn.functional.max_pool2d nn.functional.conv1d "
        "nn.functional.adaptive_avg_pool2d nn.functional.interpolate.bilinear"
    ),
    "normalisation": "native_layer_norm nn.functional.group_norm native_batch_norm",
    "losses": "nn.functional.cross_entropy nn.functional.huber_loss nn.functional.nll_loss",
    "embeddings and attention": (
        "nn.functional.embedding nn.functional.embedding_bag "
        "nn.functional.multi_head_attention_forward"
    ),
    "random numbers": "bernoulli nn.functional.dropout randn_like",
    "factories": "arange linspace full_like eye",
}
MODULES = (
    "nn.Linear nn.Conv2d nn.BatchNorm1d nn.LayerNorm nn.Embedding nn.LSTMCell nn.MaxPool1d "
    "nn.GELU nn.CrossEntropyLoss nn.MultiheadAttention"
)
OPTIMIZERS = "SGD RMSprop AdamW"

ENTRIES: tuple[str, ...] = (
    *(f"op:{name}" for names in OPERATORS.values() for name in names.split()),
    *(f"module:{name}" for name in MODULES.split()),
    *(f"optim:{name}" for name in OPTIMIZERS.split()),
)
"""What runs on XLA."""

NUMPY: tuple[str, ...] = (
    *(f"op:{name}" for names in OPERATORS.values() for name in names.split()[:2]),
    "module:nn.Linear",
    "module:nn.LayerNorm",
    "optim:AdamW",
)
"""What runs on NumPy: two operators of each family."""
