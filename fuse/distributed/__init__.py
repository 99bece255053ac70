"""``torch.distributed`` on the device: the process group ``tpu_dist``.

``registration`` is all that ``import torch`` loads. A group's C++ (``csrc/``) is built at the
first group that is made; JAX's multi-process runtime starts with the first call that uses it.
"""
