"""Operators that treat examples, rows or elements each by itself, and have no tag that says so."""

from __future__ import annotations

from collections.abc import Sequence

from fuse.families.call import Call, Results, Rule
from fuse.families.parts import Axes, Refused, broadcast, fixed, moving, shape_of
from fuse.families.rules.reductions import dims_of, without
from fuse.families.rules.registry import by_element, rule

rule(
    *("complex", "elu_backward", "hardshrink_backward", "hardsigmoid_backward", "hardswish"),
    *("hardswish_backward", "hardtanh_backward", "leaky_relu_backward", "mish_backward", "polar"),
    *("_prelu_kernel", "_prelu_kernel_backward", "rsub.Tensor", "softplus_backward"),
    "softshrink_backward",
)(by_element)


@rule("log_sigmoid_backward")
def _log_sigmoid_backward(call: Call) -> Results:
    """What the forward pass kept, its last operand, may be empty."""
    return [broadcast([call.axes_of("grad_output"), call.axes_of("self")])]


def _made(call: Call, axes: Axes, dims: Sequence[int]) -> list[Axes]:
    """Axes of results that are like ``axes`` but along ``dims``, which are as recorded."""
    return [
        tuple(fixed(part.view.shape[dim]) if dim in dims else axis for dim, axis in enumerate(axes))
        for part in call.node.parts()
    ]


def _along(name: str = "dim", operand: str = "self") -> Rule:
    """Each row along dimensions that do not move."""

    def rule(call: Call) -> Results:
        axes, given = call.axes_of(operand), call.given(name)
        dims = [
            dim % max(len(axes), 1) for dim in (given if isinstance(given, tuple) else (given,))
        ]
        if axes and moving([axes[dim] for dim in dims]):
            raise Refused("it goes along a size that moves")
        return _made(call, axes, dims)

    return rule


rule("glu", "_cummax_helper", "_cummin_helper", "cummax", "cummin")(_along())
rule("logcumsumexp", "_logcumsumexp", "_fft_r2c", "_fft_c2c", "_fft_c2r")(_along())


@rule("glu_backward")
def _glu_backward(call: Call) -> Results:
    axes, dim = call.axes_of("self"), call.given("dim")
    if moving([axes[dim]]):
        raise Refused("it goes along a size that moves")
    return [axes]


@rule("var.correction", "std.correction", "var_mean.correction", "std_mean.correction")
def _spread(call: Call) -> Results:
    """A variance counts its elements: none of them may be padding."""
    axes = call.axes_of("self")
    dims = dims_of(call, "dim", len(axes))
    if axes and moving([axes[dim] for dim in dims]):
        raise Refused("its statistics count padding")
    return [without(axes, dims, call.given("keepdim"))] * len(call.node.slots)


def _examples(last: int, *names: str, size: str | None = None) -> Rule:
    """All dimensions but the ``last`` ones: of the operands ``names``, and of the results.

    ``size`` is the argument that is the result's size, or the size's last dimensions.
    """

    def rule(call: Call) -> Results:
        every = [call.axes_of(name) for name in names]
        if any(moving(axes[len(axes) - last :]) for axes in every):
            raise Refused("it goes over a size that moves")
        kept = broadcast([axes[: len(axes) - last] for axes in every])
        if size is not None:
            given = call.given(size)
            call.replace(size, (*shape_of(kept), *given[len(kept) :]))
        return [(*kept, *map(fixed, part.view.shape[len(kept) :])) for part in call.node.parts()]

    return rule


for _rank, _names in (
    (1, ("upsample_linear1d", "upsample_nearest1d", "_upsample_nearest_exact1d")),
    (2, ("upsample_bicubic2d", "upsample_bilinear2d", "upsample_nearest2d")),
    (2, ("_upsample_nearest_exact2d", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa")),
    (3, ("upsample_nearest3d", "upsample_trilinear3d", "_upsample_nearest_exact3d")),
):
    for _name in _names:
        rule(_name)(_examples(_rank, "self"))
        rule(f"{_name}.vec")(_examples(_rank, "input"))
        rule(f"{_name}_backward")(_examples(_rank, "grad_output", size="input_size"))

for _rank in (1, 2, 3):
    for _name in (f"reflection_pad{_rank}d", f"replication_pad{_rank}d"):
        rule(_name)(_examples(_rank, "self"))
        rule(f"{_name}_backward")(_examples(_rank, "grad_output", "self"))

for _name in ("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d"):
    rule(_name)(_examples(2, "self"))
    rule(f"{_name}_backward")(_examples(2, "grad_output", "self"))

rule("avg_pool3d", "adaptive_max_pool2d", "_adaptive_avg_pool3d", "max_pool3d_with_indices")(
    _examples(3, "self")
)
rule("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle")(
    _examples(3, "self")
)
rule("avg_pool3d_backward", "adaptive_max_pool2d_backward", "_adaptive_avg_pool3d_backward")(
    _examples(3, "grad_output", "self")
)


@rule("grid_sampler_2d", "grid_sampler_3d")
def _sampled(call: Call) -> Results:
    """Each example by itself; padding of the grid asks for any place."""
    axes, grid = call.axes_of("input"), call.axes_of("grid")
    if moving((*axes[1:], *grid[1:])):
        raise Refused("it goes over a size that moves")
    kept = broadcast([axes[:1], grid[:1]])
    return [(*kept, *map(fixed, part.view.shape[1:])) for part in call.node.parts()]
