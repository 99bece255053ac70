"""``fuse.jax_call``: one call of a JAX function on tensors."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any, Final

from fuse.backends.xla.canonical import content
from fuse.bounded import Bounded
from fuse.kernels.dynamo import outside
from fuse.kernels.kernel import NAMESPACE, Kernel

MOST_CALLED: Final = 4096
"""Functions that are remembered; each has been traced, about 100 kB."""
_calls: Final[Bounded[str, Kernel]] = Bounded(MOST_CALLED)


@outside
def jax_call(function: Callable[..., Any], /, *args: Any, **static: Any) -> Any:
    """Call a JAX function on tensors once, without making it a kernel.

    Functions are told apart by their code and what they close over, so a function made anew at
    every call compiles once. Digesting them costs about 20 us a call.

    Args:
        function: takes and returns JAX arrays, as for ``kernel``; ``jax.jit`` may have wrapped it.
        args: tensors, trees of them, or numbers, which are traced.
        static: by keyword; what is no tensor is static: another value is another program.

    Returns:
        New tensors, or trees of them, of JAX's shapes and dtypes, with gradients by ``jax.vjp``.

    Raises:
        KernelError: the function fails; the text has its shapes and your line.

    Example:
        ```python
        import jax.numpy as jnp

        x = torch.ones(2, 3, device="tpu")
        print(fuse.jax_call(jnp.sum, x, axis=1).tolist())  # [3.0, 3.0]
        ```
    """
    return called(function)(*args, **static)


def called(function: Callable[..., Any]) -> Kernel:
    """The kernel that calls a function: one for all functions of the same content."""
    text = hashlib.sha256(content(_inner(function)).encode()).hexdigest()
    return _calls.memo(text, lambda: Kernel(function, name=f"{NAMESPACE}::jax_call", text=text))


def _inner(function: Any) -> Any:
    """The function that ``jax.jit`` has wrapped."""
    return inspect.unwrap(function) if hasattr(function, "__wrapped__") else function
