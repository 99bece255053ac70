"""Several processes: JAX's multi-process runtime, and collectives as programs that it runs."""
