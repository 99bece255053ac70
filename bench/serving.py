"""The example server under load: requests of random lengths over HTTP, checked and timed.

    python -m bench.serving --load 500 --device tpu
    python -m bench.serving --load 500 --device cpu

Clients, server and device share this process. Every answer is compared with what the model writes
alone on the CPU (a sample of them with ``--check``). On the device it also counts executables,
and fails when there are more than 30 or when one is new after the first 100 requests.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import fuse
from fuse.examples import chargpt
from fuse.examples.continuous_batching import Batcher
from fuse.examples.serving import SLOTS, Server, trained_model
from fuse.examples.static_cache import BUCKETS, StaticCache, write_alone

SECONDS = 120.0
"""The longest that a client waits for one answer."""
WARM = 100
"""Requests after which nothing may be compiled; the figures are of those that follow."""
MOST_EXECUTABLES = 30


@dataclass(frozen=True)
class Asked:
    """One request."""

    prompt: str
    length: int


@dataclass(frozen=True)
class Answered:
    """Its text, when it was sent and when its answer was there (``time.perf_counter``), and the
    entries of the memory cache by then: executables, compiled or found on disk, and some plans."""

    text: str
    sent: float
    there: float
    entries: int


def requests(text: chargpt.Text, count: int, most: int = 100) -> list[Asked]:
    """Prompts of 1 to 128 held-out characters, to be written on by 1 to ``most``."""
    draw = random.Random(0)
    held_out = text.decode(text.held_out.tolist())
    found = []
    for _ in range(count):
        size = draw.randint(1, BUCKETS[-1])
        start = draw.randrange(len(held_out) - size)
        found.append(Asked(held_out[start : start + size], draw.randint(1, most)))
    return found


def entries() -> int:
    """What this process has put into its memory cache so far: at least all its executables."""
    return int(fuse.stats()["cache"]["memory"]["puts"])


def ask_all(port: int, asked: list[Asked], clients: int, device: str) -> list[Answered]:
    """Each client asks for the next text when it has its last one; answers in the order asked."""
    answers: list[Answered | None] = [None] * len(asked)
    numbers, lock = itertools.count(), threading.Lock()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        while True:
            with lock:
                at = next(numbers)
            if at >= len(asked):
                connection.close()
                return
            sent = time.perf_counter()
            body = json.dumps({"prompt": asked[at].prompt, "length": asked[at].length})
            connection.request("POST", "/generate", body)
            response = connection.getresponse()
            content = json.loads(response.read())
            if response.status != 200:
                raise RuntimeError(f"request {at}: {response.status} {content}")
            made = entries() if device == "tpu" else 0
            answers[at] = Answered(content["text"], sent, time.perf_counter(), made)

    with ThreadPoolExecutor(clients) as pool:
        for one in [pool.submit(client) for _ in range(clients)]:
            one.result()
    return [answer for answer in answers if answer is not None]


def check(
    text: chargpt.Text, model: chargpt.CharGPT, asked: list[Asked], answers: list[Answered]
) -> None:
    """Compare with what the model on the CPU writes alone; raises ``AssertionError``."""
    assert len(answers) == len(asked)
    for one, answer in zip(asked, answers, strict=True):
        alone = text.decode(write_alone(model, text.encode(one.prompt), one.length))
        assert answer.text == alone, f"{one.prompt!r}: {answer.text!r}, alone {alone!r}"


def figures(answers: list[Answered]) -> str:
    """Requests and characters a second, latencies: of the answers after the first ``WARM``."""
    in_order = sorted(answers, key=lambda answer: answer.there)
    steady = in_order[WARM:]
    seconds = steady[-1].there - in_order[WARM - 1].there
    latencies = [1e3 * (answer.there - answer.sent) for answer in steady]
    characters = sum(len(answer.text) for answer in steady)
    first = in_order[WARM - 1].there - min(answer.sent for answer in answers)
    late = statistics.quantiles(latencies, n=20)[-1]
    return (
        f"first {WARM} requests {first:.1f} s; then {len(steady) / seconds:.1f} requests and "
        f"{characters / seconds:.0f} characters a second, latency "
        f"{statistics.median(latencies):.0f} ms (95 %: {late:.0f} ms)"
    )


def main() -> None:
    """Serve, ask, check, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="tpu", choices=["cpu", "tpu"])
    parser.add_argument("--load", type=int, default=500, help="requests")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--slots", type=int, default=SLOTS)
    parser.add_argument("--train", type=int, default=200, help="steps of training before")
    parser.add_argument("--check", type=int, help="answers to compare (default: all)")
    options = parser.parse_args()
    os.environ.setdefault("FUSE_TIER", "compiled")  # all executables early: they are counted
    text = chargpt.load_data("cpu")
    asked = requests(text, options.load)
    model = trained_model(options.device, text, options.train)
    with Batcher(StaticCache(model, options.slots)) as batcher:
        server = Server(("127.0.0.1", 0), batcher, text)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        answers = ask_all(server.server_port, asked, options.clients, options.device)
        server.shutdown()
        server.server_close()
    if len(answers) > WARM:
        print(f"{options.device}: {figures(answers)}")
    if options.device == "tpu":
        made = sorted(answer.entries for answer in answers)
        late = made[-1] - made[min(WARM, len(made)) - 1]
        stats = fuse.stats()
        print(f"{stats['compiles']} executables compiled in {stats['compile_seconds']:.1f} s,")
        print(f"{made[-1]} entries of the cache, {late} of them after {WARM} requests,")
        print(f"host fallbacks {stats['host_fallbacks']}")
        assert made[-1] <= MOST_EXECUTABLES, made[-1]
        assert len(made) <= WARM or not late, late
    check(text, model.cpu(), asked[: options.check], answers[: options.check])
    print(f"{len(asked[: options.check])} answers are the model's own")


if __name__ == "__main__":
    main()
