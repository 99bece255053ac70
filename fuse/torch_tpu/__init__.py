"""The rest of ``torch.tpu``: names that programs written for TorchTPU use, loaded when asked for.

Python finds these files as ``torch.tpu.pallas`` and so on (``__path__`` of ``torch.tpu``). What is
the same and what differs is said name by name in ``docs/from-torch-tpu.md``.
"""
