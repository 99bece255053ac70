"""The coordination service of JAX's runtime, in a process of its own: any rank may die.

Run as ``python -m fuse.backends.xla.ranks.service HOST PROCESSES SECONDS``. Prints its address, and
ends some time after its input does: clients leave before the service stops.
"""

from __future__ import annotations

import sys
import time

from jaxlib import _jax

from fuse.ports import free_port

GRACE_SECONDS = 20.0
"""How long clients have to leave, once whoever started the service has ended."""


def main(host: str, processes: str, seconds: str) -> None:
    """Serve until the input ends."""
    address = f"{host}:{free_port(host)}"
    service = _jax.get_distributed_runtime_service(
        address,
        int(processes),
        heartbeat_timeout=int(seconds),
        shutdown_timeout=5,
        recoverable=True,
    )
    print(address, flush=True)
    sys.stdin.read()
    time.sleep(GRACE_SECONDS)
    service.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
