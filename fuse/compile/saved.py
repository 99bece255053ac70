"""A compiled graph that PyTorch can store: what AOTAutograd made, as the bytes of an FX graph.

AOTAutograd's cache and ``aot_compile`` keep a compiler's result if it is an ``OutputCode``. Of a
graph there is no more to keep than the graph: executables are the cache's, by their own keys.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._guards import detect_fake_mode
from torch._inductor.output_code import OutputCode
from torch.fx._graph_pickler import GraphPickler, Options

from fuse.compile.graph import Kind
from fuse.compile.sized import Call
from fuse.compile.stages import staged

KEPT = frozenset({"val", "stack_trace"})
"""What is kept of the graph's nodes: what their values are like, and the user's lines."""


class SavedGraph(OutputCode):
    """Calls a graph like what ``staged`` makes of it, which is done at the first call.

    Not before: that may change the graph, and storing it comes between making and calling it.
    """

    def __init__(self, module: torch.fx.GraphModule, kind: Kind) -> None:
        super().__init__()
        self.kind, self.made_by = kind, digest()
        self._module: torch.fx.GraphModule | None = module
        self._stored: bytes | None = None
        self._call: Call | None = None
        self._boxed_call = True
        self._holds = any(node.op == "get_attr" for node in module.graph.nodes)

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """The results on these inputs, a list, which is emptied."""
        if self._call is None:
            assert self._module is not None
            self._call = staged(self._module, self.kind)
        assert isinstance(inputs, list)
        return self._call(inputs)

    def prepare_for_serialization(self) -> None:
        """Leave nothing but bytes.

        Raises:
            BypassAOTAutogradCache: the graph holds tensors, which a start would have to make again.
        """
        module, self._module, self._call = self._module, None, None
        if module is None:
            return
        if self._holds:
            raise BypassAOTAutogradCache("a graph of the tpu device holds constants or graphs")
        options = Options(ops_filter=None, node_metadata_key_filter=KEPT.__contains__)
        self._stored = GraphPickler.dumps(module, options)

    def post_compile(
        self, example_inputs: Sequence[Any], constants: object, graph_kwargs: object
    ) -> None:
        """Read what was stored.

        Raises:
            BypassAOTAutogradCache: another version of this package wrote it.
        """
        if self._module is not None or self._stored is None:
            return
        if self.made_by != digest():
            raise BypassAOTAutogradCache("another version of torch-fuse stored this graph")
        mode = detect_fake_mode(list(example_inputs))
        assert mode is not None, "PyTorch loads graphs within a tracing context"
        module = GraphPickler.loads(self._stored, mode)
        assert isinstance(module, torch.fx.GraphModule)
        module.recompile()
        self._module = module

    def set_triton_bundle(self, triton_bundle: object) -> None:
        """There are no kernels of Triton's."""


@functools.cache
def digest() -> str:
    """A digest of what compiles graphs: this folder's sources."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]
