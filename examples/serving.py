"""A server that writes on: the character GPT behind HTTP, with continuous batching.

    python examples/serving.py --device tpu --train 200
    curl -d '{"prompt": "The import statement", "length": 60}' http://127.0.0.1:8000/generate

The answer is ``{"text": "..."}``; what cannot be answered is 400, too many who wait 503, a text
that takes too long 504, a failure 500, each with ``{"error": "..."}``. ``--device`` is the only
difference between the CPU and the ``tpu`` device.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fuse.examples import chargpt
from fuse.examples.continuous_batching import Batcher, FullError
from fuse.examples.static_cache import StaticCache

CONTEXT = 256
SLOTS = 16
SECONDS = 120.0
"""The longest that one text may take, waiting included."""
LARGEST_BODY = 1 << 16


def trained_model(device: str, text: chargpt.Text, steps: int) -> chargpt.CharGPT:
    """The model after ``steps`` steps on the CPU, so that every device serves the same weights."""
    model = chargpt.build_model("cpu", text, context=CONTEXT)
    optimizer = chargpt.build_optimizer(model)
    stream = chargpt.batches(text, context=CONTEXT)
    for _ in range(steps):
        chargpt.train_step(model, optimizer, *next(stream))
    return model.to(device).eval()


class Server(ThreadingHTTPServer):
    """Listens on ``address``, a host and a port (0: any free one), and asks ``batcher``."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], batcher: Batcher, text: chargpt.Text) -> None:
        """Bound from here on; ``serve_forever`` answers."""
        self.batcher = batcher
        self.text = text
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = SECONDS
    # Head and body of an answer leave together: apart, the second waits for the client's ACK.
    wbufsize = -1

    def do_POST(self) -> None:
        if self.path != "/generate":
            self.close_connection = True  # its body is not read
            self._answer(404, {"error": "POST /generate is what there is"})
            return
        try:
            prompt, length = self._asked()
            answer = self.server.batcher.submit(self.server.text.encode(prompt), length)
        except (ValueError, KeyError, TypeError) as error:
            self._answer(400, {"error": f"{type(error).__name__}: {error}"})
            return
        except RuntimeError as error:
            self._answer(503 if isinstance(error, FullError) else 500, {"error": str(error)})
            return
        try:
            self._answer(200, {"text": self.server.text.decode(answer.result(SECONDS))})
        except TimeoutError:
            answer.cancel()
            self._answer(504, {"error": f"not written within {SECONDS:.0f} s"})
        except RuntimeError as error:
            self._answer(500, {"error": str(error)})

    def _asked(self) -> tuple[str, int]:
        size = int(self.headers.get("Content-Length", 0))
        if size > LARGEST_BODY:
            self.close_connection = True  # its body is not read
            raise ValueError(f"a request has at most {LARGEST_BODY} bytes, not {size}")
        asked = json.loads(self.rfile.read(size))
        return str(asked["prompt"]), int(asked["length"])

    def _answer(self, status: int, content: dict[str, str]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """No line for each request."""


def main() -> None:
    """Train a little, and serve until interrupted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu or tpu (default: cpu)")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--slots", type=int, default=SLOTS, help="texts written at a time")
    parser.add_argument("--train", type=int, default=200, help="steps of training before")
    options = parser.parse_args()
    text = chargpt.load_data("cpu")
    model = trained_model(options.device, text, options.train)
    with Batcher(StaticCache(model, options.slots)) as batcher:
        server = Server(("127.0.0.1", options.port), batcher, text)
        print(f"http://127.0.0.1:{server.server_port} serves from {options.device}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")


if __name__ == "__main__":
    main()
