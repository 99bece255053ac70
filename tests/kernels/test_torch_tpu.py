"""The names that programs written for TorchTPU use: real behaviour, or an error that says why."""

from __future__ import annotations

import jax
import pytest
import torch
import torch.nn.functional as F

import fuse
from fuse.errors import ExecutionError, UnsupportedError
from tests.device.helpers import DEVICE, made, run


@pytest.mark.slow
def test_importing_loads_nothing_of_it():
    code = (
        "import sys, torch, fuse; print([n for n in sys.modules if n.startswith('torch.tpu.')]); "
        "torch.tpu.is_available(); torch.manual_seed(0); torch.accelerator.is_available(); "
        "print([n for n in sys.modules if n.startswith(('torch.tpu.', 'fuse.torch_tpu', 'jax'))])"
    )
    assert run(code, fresh=True) == "[]\n[]\n"
    assert (
        run("import torch.tpu.pallas as p; print(p.__name__)", fresh=True) == "torch.tpu.pallas\n"
    )
    assert run("from torch.tpu.ops import ragged_dot as r; print(r.__name__)") == "ragged_dot\n"


def test_eager_modes_are_ours():
    modes = torch.tpu.EagerMode
    assert torch.tpu.eager_mode is modes.DEFER_AND_FUSE
    with torch.tpu.set_eager_mode(modes.DEFER_NEVER):
        assert fuse.get_mode() == "strict"
        with torch.tpu.set_eager_mode(modes.DEFER_NEVER_AND_LAUNCH_BLOCKING):
            assert fuse.get_mode() == "debug"
        assert torch.tpu.eager_mode is modes.DEFER_NEVER
    torch.tpu.eager_mode = modes.DEFER_NEVER
    try:
        assert fuse.get_mode() == "strict"
    finally:
        torch.tpu.eager_mode = modes.DEFER_AND_FUSE
    assert fuse.get_mode() == "fused"
    with pytest.raises(ValueError, match="not a valid EagerMode"):
        torch.tpu.eager_mode = "eager"


def test_precision_is_the_devices_setting_for_a_block():
    x = torch.randn(32, 32)
    wanted = x @ x  # by all of float32's bits: with "medium" some CPUs take bfloat16's as well
    products = torch.backends.tpu.matmul
    for level, name in zip(torch.tpu.Precision, ("bf16", "tf32", "ieee"), strict=True):
        with torch.tpu.precision(level):
            assert products.fp32_precision == name
            near = {"atol": 0.2, "rtol": 0.02} if name == "bf16" else {}
            torch.testing.assert_close((x.to(DEVICE) @ x.to(DEVICE)).cpu(), wanted, **near)
    assert products.fp32_precision == "none"
    with pytest.raises(ValueError, match="not a valid Precision"), torch.tpu.precision("low"):
        pass


def test_devices_are_described():
    found = torch.tpu.get_device_properties("tpu:0")
    assert found.name == torch.tpu.get_device_name()
    assert found.total_memory > 1 << 20
    assert found.multi_processor_count == 1
    with torch.tpu.device_of(torch.ones(1, device=DEVICE)):
        assert torch.tpu.current_device() == 0
    with torch.tpu.device_of(torch.ones(1)):
        assert torch.tpu.current_device() == 0


def test_jax_op():
    @torch.tpu.pallas.jax_op("fuse_tests::scaled_sum")
    def scaled_sum(n: int, x: jax.Array, y: jax.Array, scale: float = 2.0) -> jax.Array:
        return (x * n + y) * scale

    x, y = torch.randn(2, 3), torch.randn(3)
    for _ in range(6):
        found = scaled_sum(3, x.to(DEVICE), y.to(DEVICE), scale=4.0)
    torch.testing.assert_close(found.cpu(), (x * 3 + y) * 4)
    operator = torch.ops.fuse_tests.scaled_sum
    torch.testing.assert_close(operator(x, y, n=1), (x + y) * 2)
    given = x.to(DEVICE).requires_grad_()
    scaled_sum(3, given, y.to(DEVICE)).sum().backward()  # without a formula of the program's own
    assert given.grad.tolist() == [[6.0] * 3] * 2
    scaled_sum.register_fake(lambda n, x, y, scale=2.0: torch.empty_like(x))

    def setup(ctx, inputs, keyword_only_inputs, output):
        ctx.n = keyword_only_inputs["n"]

    scaled_sum.register_autograd(lambda ctx, g: (g * 10 * ctx.n, None), setup_context=setup)
    given.grad = None
    scaled_sum(3, given, y.to(DEVICE)).sum().backward()
    assert given.grad.tolist() == [[30.0] * 3] * 2
    torch.testing.assert_close(torch.vmap(lambda a: scaled_sum(1, a, y))(x), (x + y) * 2)


def test_optional_plain_values_of_a_jax_op_are_static():
    @torch.tpu.pallas.jax_op("fuse_tests::configured")
    def configured(
        x: jax.Array,
        k: int,
        lengths: jax.Array | None = None,
        kind: str | None = None,
        scale: float | None = None,
        config: tuple[int, ...] | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        assert kind in (None, "double") and (config is None or isinstance(config, tuple))
        made = x * k * (2 if kind else 1) * (scale or 1.0) + sum(config or ())
        return made, made if lengths is None else made + lengths

    schema = str(torch.ops.fuse_tests.configured.default._schema)
    assert "Tensor? lengths=None, *, int k, str? kind=None, float? scale=None" in schema
    assert "int[]? config=None" in schema
    x = torch.ones(3, device=DEVICE)
    for _ in range(6):
        first, second = configured(x, 3, None, kind="double", scale=0.5, config=(1, 2))
        assert first.tolist() == second.tolist() == [6.0] * 3
        assert configured(x, 2, x)[1].tolist() == [3.0] * 3
    assert configured(x, 1, config=None)[0].tolist() == [1.0] * 3


def test_jax_op_donates_and_refuses_meshes():
    def add(x, y):
        return x + y

    added = torch.tpu.pallas.jax_op("fuse_tests::added_", add, donate_argnums=(0,))
    x = torch.ones(3, device=DEVICE)
    assert added(x, x.clone()) is x
    assert x.tolist() == [2.0] * 3
    with pytest.raises(UnsupportedError, match="writes nothing"):
        added.register_autograd(lambda ctx, g: g)
    with pytest.raises(UnsupportedError, match="a kernel of several devices"):
        torch.tpu.pallas.jax_op("fuse_tests::meshed", add, mesh=object())
    with pytest.raises(ValueError, match="must be namespace::name"):
        torch.tpu.pallas.jax_op("unnamed", add)
    with pytest.raises(UnsupportedError, match="init_device_mesh"):
        torch.tpu.pallas.get_pallas_mesh("x")


def test_operators_are_pytorchs_own():
    ops = torch.tpu.ops
    q, k = torch.randn(2, 4, 8, 16), torch.randn(2, 2, 8, 16)
    on = [tensor.to(DEVICE) for tensor in (q, k)]
    wanted = F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
    found = ops.splash_sdpa(on[0], on[1], on[1], block_q=256)
    torch.testing.assert_close(found.cpu(), wanted, atol=1e-5, rtol=1e-5)
    near = torch.ones(8, 8).tril().triu(-3).bool()
    wanted = F.scaled_dot_product_attention(q, q, q, near, scale=0.5)
    found = ops.splash_sdpa(on[0], on[0], on[0], local_window_size=3, scale=0.5)
    torch.testing.assert_close(found.cpu(), wanted, atol=1e-5, rtol=1e-5)

    x, weights = torch.randn(6, 4), torch.randn(2, 4, 3)
    sizes = torch.tensor([2, 4])
    wanted = torch.cat([x[:2] @ weights[0], x[2:] @ weights[1]])
    given = weights.to(DEVICE).requires_grad_()
    found = ops.ragged_dot(x.to(DEVICE), given, sizes.to(DEVICE))
    torch.testing.assert_close(found.detach().cpu(), wanted)
    grad = torch.randn(6, 3)
    found.backward(grad.to(DEVICE))
    own = ops.ragged_dot_weight_grad(x.to(DEVICE), grad.to(DEVICE), sizes.to(DEVICE))
    torch.testing.assert_close(own.cpu(), given.grad.cpu())
    out = torch.empty(6, 3, device=DEVICE)
    assert ops.ragged_dot(x.to(DEVICE), weights.to(DEVICE), sizes.to(DEVICE), out=out) is out
    kept = ops.optimization_barrier([x.to(DEVICE), sizes.to(DEVICE)])
    assert torch.equal(kept[0].cpu(), x)
    assert torch.equal(kept[1].cpu(), sizes)
    pooled = ops.max_pool2d(q.to(DEVICE), (2, 2), (2, 2), (0, 0), (1, 1), False)
    assert torch.equal(pooled.cpu(), F.max_pool2d(q, 2))


def test_what_is_missing_says_why():
    assert not hasattr(torch.tpu.ops, "sparse_gather")
    with pytest.raises(
        AttributeError, match=r"sparse_gather: it is an operation of a TPU's Sparse"
    ):
        torch.tpu.ops.sparse_gather  # noqa: B018
    with pytest.raises(AttributeError, match="hint: torch.distributed has it"):
        torch.tpu.ops.ragged_all_to_all  # noqa: B018
    with pytest.raises(AttributeError, match="torch.tpu.profiler.trace"):
        torch.tpu.profiler.TpuProfilerConfig  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        torch.tpu.nothing  # noqa: B018
    with pytest.raises(UnsupportedError, match="allow_excess_precision"):
        torch.tpu.allow_excess_precision  # noqa: B018


def test_compiler_options_hold_for_a_block():
    options = torch.tpu.compiler.custom_compiler_options
    x = torch.full((3,), 2.0, device=DEVICE)

    def program():
        return (x * 3 - 1).sum().item()

    assert program() == 15
    before = made()
    with options({"xla_cpu_enable_fast_math": True}):
        assert [program() for _ in range(3)] == [15.0] * 3
        assert made() > before
        nonsense = options({"xla_nonsense": "1"})
        with nonsense, pytest.raises(ExecutionError, match="No such compile option"):
            program()
        assert program() == 15
    assert program() == 15
    fuse.set_backend("numpy")
    try:
        with pytest.raises(UnsupportedError, match="compiles nothing"), options({"a": "b"}):
            pass
    finally:
        fuse.set_backend("xla")


@pytest.mark.parametrize("kind", ["AdamW", "Sgd", "Muon"])
def test_optimizers_are_pytorchs(kind):
    plain = {"w": torch.randn(4, 4), "v": torch.randn(4, 2)}
    optimizer = getattr(torch.tpu.optimizers, kind)(lr=0.05)
    group = optimizer.init_param_group({n: t.to(DEVICE) for n, t in plain.items()})
    wanted = [torch.nn.Parameter(tensor.clone()) for tensor in plain.values()]
    reference = {"AdamW": torch.optim.AdamW, "Sgd": torch.optim.SGD, "Muon": torch.optim.Muon}
    other = reference[kind](wanted, **optimizer.defaults)
    for step in range(6):
        grads = {name: torch.full_like(tensor, step + 1.0) for name, tensor in plain.items()}
        group = optimizer.step(group, {name: grad.to(DEVICE) for name, grad in grads.items()})
        for parameter, grad in zip(wanted, grads.values(), strict=True):
            parameter.grad = grad
        other.step()
    for found, parameter in zip(group.params.values(), wanted, strict=True):
        torch.testing.assert_close(found.cpu(), parameter.detach(), atol=1e-4, rtol=1e-3)


def test_a_trainers_step_learns():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2).to(DEVICE)
    trainer = torch.tpu.optimizers.SingleTraceTrainer(
        model, torch.tpu.optimizers.Sgd(lr=0.1), compute_loss_fn=F.mse_loss
    )
    x, y = torch.randn(16, 4, device=DEVICE), torch.randn(16, 2, device=DEVICE)
    step = trainer.make_compiled_train_step(x, y)
    losses = [step(x, y).item() for _ in range(8)]
    assert losses[-1] < 0.9 * losses[0]
    assert set(trainer.params) == {"weight", "bias"}


def test_traces_are_written(tmp_path):
    with torch.tpu.profiler.trace(tmp_path):
        (torch.ones(64, 64, device=DEVICE) @ torch.ones(64, 64, device=DEVICE)).sum().item()
    assert list(tmp_path.rglob("*.xplane.pb"))
