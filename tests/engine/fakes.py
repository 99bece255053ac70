"""A backend without a compiler, and small programs, for tests in this process."""

from __future__ import annotations

import json
import threading
import time
from typing import Any, final

import numpy as np

from fuse.backends.base import Backend, Chunk
from fuse.trace.node import Leaf, Node, NumberArg, Operand, Output, TensorArg
from fuse.trace.spec import Layout, View

LAYOUT = Layout("float32", (2, 3))
VIEW = View("float32", (2, 3), (3, 1))


@final
class FakeBackend(Backend):
    """Compiles a chunk to its text; counts, and refuses the operators in ``refused``."""

    name = "xla"

    def __init__(self, seconds: float = 0.0, refused: frozenset[str] = frozenset()) -> None:
        self.seconds = seconds
        self.refused = refused
        self.compiled: list[str] = []
        self.rejected: list[str] = []
        self.version = "1"
        self._lock = threading.Lock()

    def fingerprint(self) -> dict[str, str]:
        return {"backend": "fake", "compiler": self.version}

    def device_count(self) -> int:
        return 1

    def shares_host_memory(self) -> bool:
        return True

    def wakes_host_threads(self) -> bool:
        return True

    def has_rule(self, overload: str) -> bool:
        return True

    def reject(self, node: Node) -> str | None:
        self.rejected.append(node.op)
        return f"no {node.op} here" if node.op in self.refused else None

    def static_places(self, node: Node) -> tuple[int, ...]:
        return ()

    def compile(self, chunk: Chunk) -> Any:
        if chunk.nodes[0].op in self.refused:
            raise ValueError("the compiler gives up")
        time.sleep(self.seconds)
        with self._lock:
            self.compiled.append(str(chunk))
        return {"text": str(chunk)}

    def execute(self, executable: Any, scalars: bytes, arrays: list[Any]) -> list[Any]:
        raise AssertionError("nothing runs here")

    def dump(self, executable: Any) -> bytes | None:
        return json.dumps(executable).encode()

    def load(self, data: bytes) -> Any:
        return json.loads(data)

    def put(self, data: np.ndarray, device: int) -> Any:
        return data

    def get(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def owns(self, array: Any) -> bool:
        return isinstance(array, np.ndarray)

    def wait(self, arrays: list[Any]) -> None:
        pass


def node(op: str = "add.Scalar", number: float = 2.0, **fields: Any) -> Node:
    """``%1 = op(%0, number)``."""
    made = {
        "op": op,
        "target": op,
        "args": (TensorArg(0), NumberArg(number, 1)),
        "operands": (Operand(0, VIEW, LAYOUT, 0),),
        "outputs": (Output(1, VIEW, LAYOUT),),
        "writes": (),
        "slots": (0,),
        "source": "train.py:7",
    }
    return Node(**(made | fields))


def chunk(*nodes: Node) -> Chunk:
    """A chunk over one array."""
    return Chunk(nodes or (node(),), (Leaf(0, LAYOUT),), (1,), (), 0)
