"""The numbers of PyTorch's operator database that stay constants of an executable, and why."""

from __future__ import annotations

from typing import Final

AXIS: Final = "an axis"
WINDOW: Final = "a size or a step of a window: it lays out the reads"
GROUPS: Final = "a number of groups: it lays out the reads"
VIEW: Final = "a size or a step of a view: it lays out the reads"
SIZE: Final = "with another number it decides the size of a result or an operand"
ALGORITHM: Final = "decides the algorithm: another number is another sequence of operations"

CONSTANT: Final[dict[str, dict[str, str]]] = {
    "_softmax_backward_data": {"[1]": AXIS},
    "argsort": {"[0]": AXIS},
    "as_strided_copy": {"[1][0]": VIEW},
    "as_strided_scatter": {"[2][0]": VIEW},
    "cdist": {"[1]": ALGORITHM},
    "cummax": {"[0]": AXIS},
    "cummin": {"[0]": AXIS},
    "cumprod": {"[0]": AXIS},
    "cumsum": {"[0]": AXIS},
    "dist": {"[1]": ALGORITHM},
    "linalg.matrix_power": {"[0]": ALGORITHM},
    "linalg.vector_norm": {"['ord']": ALGORITHM},
    "log_softmax": {"[0]": AXIS},
    "log_softmax.with_dtype": {"[0]": AXIS},
    "logcumsumexp": {"[0]": AXIS},
    "logsumexp": {"[0][0]": AXIS},
    "masked.norm": {"[0]": ALGORITHM},
    "masked.normalize": {"[0]": ALGORITHM},
    "max.reduction_with_dim": {"[0]": AXIS},
    "max_pool2d_with_indices_backward": {
        "['kernel_size']": WINDOW,
        "['stride']": WINDOW,
        "['stride'][0]": WINDOW,
    },
    "min.reduction_with_dim": {"[0]": AXIS},
    "mvlgamma.mvlgamma_p_1": {"[0]": ALGORITHM},
    "mvlgamma.mvlgamma_p_3": {"[0]": ALGORITHM},
    "mvlgamma.mvlgamma_p_5": {"[0]": ALGORITHM},
    "narrow_copy": {"[1]": SIZE},
    "nn.functional.channel_shuffle": {"[0]": GROUPS},
    "nn.functional.conv3d": {"['dilation']": WINDOW},
    "nn.functional.cosine_similarity": {"['dim']": AXIS},
    "nn.functional.ctc_loss": {"[1][0]": SIZE, "[2][0]": SIZE},
    "nn.functional.fractional_max_pool2d": {"[0]": WINDOW, "[0][0]": WINDOW},
    "nn.functional.fractional_max_pool3d": {"[0][0]": WINDOW},
    "nn.functional.group_norm": {"[0]": GROUPS},
    "nn.functional.local_response_norm": {"[0]": WINDOW},
    "nn.functional.max_pool1d": {"['stride']": WINDOW},
    "nn.functional.max_unpool3d.grad": {"['stride']": WINDOW},
    "nn.functional.normalize": {"['p']": ALGORITHM, "['dim']": AXIS},
    "nn.functional.pdist": {"['p']": ALGORITHM},
    "nn.functional.softmin": {"[0]": AXIS},
    "nn.functional.softmin.with_dtype": {"[0]": AXIS},
    "norm": {"[0]": ALGORITHM},
    "norm.inf": {"[0]": ALGORITHM, "[1]": AXIS},
    "polygamma.polygamma_n_0": {"[0]": ALGORITHM},
    "polygamma.polygamma_n_1": {"[0]": ALGORITHM},
    "polygamma.polygamma_n_2": {"[0]": ALGORITHM},
    "polygamma.polygamma_n_3": {"[0]": ALGORITHM},
    "polygamma.polygamma_n_4": {"[0]": ALGORITHM},
    "prod": {"[0]": AXIS},
    "renorm": {"[0]": ALGORITHM, "[1]": AXIS},
    "rot90": {"[0]": ALGORITHM},
    "select_scatter": {"[1]": AXIS},
    "slice_scatter": {"[1]": AXIS},
    "softmax": {"[0]": AXIS},
    "softmax.with_dtype": {"[0]": AXIS},
    "sort": {"[0]": AXIS},
    "special.polygamma.special_polygamma_n_0": {"[0]": ALGORITHM},
    "torch.ops.aten._safe_softmax.default": {"['dim']": AXIS},
    "unbind_copy": {"[0]": AXIS},
    "unfold_copy": {"[2]": VIEW},
}
"""Entry -> number -> why it stays one. A number that varies is to be taken out."""
UNDEFINED: Final = {
    "grid_sampler_2d": {"[1]", "[2]"},
    "grid_sampler_3d": {"[1]", "[2]"},
}
"""Numbers that name one of a few choices: of others the CPU's kernels make whatever they find."""
