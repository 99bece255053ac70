"""``torch.tpu.pallas``: TorchTPU's way to write a kernel, on top of ``fuse.kernel``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fuse.errors import UnsupportedError, describe
from fuse.kernels import signature
from fuse.kernels.kernel import Kernel


class JaxOp(Kernel):
    """A kernel whose annotated plain values are static, with the methods of ``CustomOpDef``."""

    def __init__(self, function: Callable[..., Any], name: str, donate: Sequence[str]) -> None:
        """``donate`` names the parameters that are overwritten."""
        own = self._own = signature.read(function)
        self._statics = {
            one.name for one in own.parameters.values() if signature.kind_named(one.annotation)
        }
        tensors = [name for name in own.parameters if name not in self._statics]

        @functools.wraps(function)
        def run(*args: Any, **options: Any) -> Any:
            return function(**dict(zip(tensors, args, strict=False)), **options)

        moved = [
            one.replace(kind=one.KEYWORD_ONLY) if one.name in self._statics else one
            for one in own.parameters.values()
        ]
        moved.sort(key=lambda one: one.kind)
        run.__signature__ = own.replace(parameters=moved)  # type: ignore[attr-defined]
        super().__init__(run, name=name, donate=donate)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the operator with arguments as the function takes them."""
        given = self._own.bind(*args, **options).arguments
        static = {name: given.pop(name) for name in self._statics & set(given)}
        return super().__call__(*given.values(), **static)

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Use a gradient formula of PyTorch's kind, as ``torch.library.register_autograd`` says.

        Raises ``UnsupportedError`` for a kernel whose calls no schema says, or that overwrites.
        """
        if self._operator is None or self.donate:
            text = "a formula of PyTorch's needs an operator of single tensors that writes nothing"
            raise UnsupportedError(
                describe(text, operator=self.name, hint="give fuse.kernel a gradient=")
            )
        self._operator.formula = (setup_context, backward)

    def register_fake(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Nothing is needed: JAX says what a call returns, for symbolic sizes too."""
        return function


def jax_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    donate_argnums: int | Sequence[int] | None = None,
    mesh: Any = None,
    input_partition_specs: Any = None,
    output_partition_specs: Any = None,
) -> Any:
    """Make a JAX function the operator ``name``; without ``fn``, a decorator.

    Parameters annotated as ``bool``, ``int``, ``float`` or ``str``, as tuples of numbers, or as one
    of these or ``None``, are static; in the operator's schema they are keyword-only. Unlike
    TorchTPU's, the operator has a gradient (``jax.vjp``), ``vmap`` and symbolic sizes, and a
    donated tensor holds the result that took its memory.

    Raises:
        ValueError: ``name`` is not ``namespace::name``.
        UnsupportedError: the kernel is one of several devices.
    """
    if name.count("::") != 1:
        raise ValueError(f"{name!r} is no operator's name: it must be namespace::name")
    if mesh is not None or input_partition_specs is not None or output_partition_specs is not None:
        raise UnsupportedError(
            describe(
                "a kernel of several devices cannot be an operator",
                operator=name,
                hint="use torch.distributed between kernels of one device",
            )
        )

    def make(function: Callable[..., Any]) -> JaxOp:
        numbers = (donate_argnums,) if isinstance(donate_argnums, int) else donate_argnums or ()
        names = list(signature.read(function).parameters)
        return JaxOp(function, name, [names[number] for number in numbers])

    return make if fn is None else make(fn)


def get_pallas_mesh(*_: object, **__: object) -> Any:
    """A mesh of all ranks' devices for one kernel: there is none; raises ``UnsupportedError``."""
    raise UnsupportedError(
        describe(
            "a kernel runs on one device: there is no mesh of several for it",
            operator="torch.tpu.pallas.get_pallas_mesh",
            hint="torch.distributed.device_mesh.init_device_mesh makes one of ranks",
        )
    )


def get_default_pallas_mesh(process_group: Any = None) -> Any:
    """The mesh of all ranks, whose one axis is ``rank``."""
    return get_pallas_mesh("rank", process_group=process_group)
