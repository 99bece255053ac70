"""Backend name -> instance, loaded on first use: only a chosen backend's libraries are imported."""

from __future__ import annotations

import hashlib
import importlib
from functools import cache
from pathlib import Path

import fuse.trace
from fuse import config
from fuse.backends.base import Backend
from fuse.errors import ConfigError, describe

_FACTORIES = {name: f"fuse.backends.{name}.backend:create" for name in config.BACKENDS}
_named: dict[str, Backend] = {}


def check(name: str) -> str:
    """``name`` if it may be a backend's; otherwise ``ConfigError``. Loads nothing."""
    if ":" in name or name in _named:
        return name
    return config.choice("backend", name, config.BACKENDS)


def get_backend(name: str) -> Backend:
    """The one instance of a backend.

    Args:
        name: one of ``config.BACKENDS``; ``module:function``, where the function takes nothing
            and returns a ``Backend``; or the own name of one that was loaded so before.

    Raises ``ConfigError`` where there is no such backend.
    """
    check(name)
    found = _named.get(name)
    return _load(_FACTORIES.get(name, name)) if found is None else found


@cache
def _load(factory: str) -> Backend:
    module, _, function = factory.partition(":")
    try:
        create = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise _refused(factory, f"{module} cannot be imported: {error}") from error
    if create is None:
        raise _refused(factory, f"{module} has no {function}")
    try:
        backend = create()
    except TypeError as error:
        raise _refused(factory, f"it cannot be called so: {error}") from error
    if not isinstance(backend, Backend):
        raise _refused(factory, "what it returns is no fuse.backends.base.Backend")
    if backend.name in _named:
        raise _refused(factory, f"there is a backend {backend.name!r} already")
    _named[backend.name] = backend
    return backend


def _refused(factory: str, why: str) -> ConfigError:
    return ConfigError(
        describe(
            f"no backend {factory!r}: {why}",
            hint=f"use one of {', '.join(config.BACKENDS)}, or module:function of your own",
        )
    )


def sources(backend: Backend) -> list[Path]:
    """The files by which any backend, and this one, turns a program into an executable."""
    return [*Path(__file__).parent.glob("*.py"), *backend.sources()]


@cache
def source_digest(backend: Backend) -> str:
    """A digest of the sources by which ``backend`` turns a program into an executable."""
    trace = Path(fuse.trace.__path__[0]).glob("*.py")
    digest = hashlib.sha256()
    for path in sorted([*trace, *sources(backend)]):
        data = path.read_bytes()
        digest.update(f"{path.parent.name} {path.name} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()[:16]
