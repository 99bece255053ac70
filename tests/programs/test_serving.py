"""The example server over HTTP: many texts side by side, each as the model writes it alone."""

from __future__ import annotations

import contextlib
import copy
import http.client
import json
import threading
from collections.abc import Iterator

import pytest

import fuse
from bench.serving import ask_all, check, requests
from fuse.examples import chargpt
from fuse.examples.continuous_batching import Batcher
from fuse.examples.serving import Server, trained_model
from fuse.examples.static_cache import BUCKETS, StaticCache, bucket_of
from tests.lanes import only_in

REQUESTS = 40
SLOTS = 4
MOST_EXECUTABLES = 30


@contextlib.contextmanager
def serving(
    model: chargpt.CharGPT, text: chargpt.Text, most_waiting: int = 100
) -> Iterator[tuple[int, Batcher]]:
    """A port of the loopback that answers, and who computes behind it."""
    with Batcher(StaticCache(model, SLOTS), most_waiting) as batcher:
        server = Server(("127.0.0.1", 0), batcher, text)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port, batcher
        finally:
            server.shutdown()
            thread.join(timeout=30)
            server.server_close()


def asked(port: int, body: str | bytes, path: str = "/generate") -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=240)
    with contextlib.closing(connection):
        connection.request("POST", path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@only_in("compiled", "accelerator", reason="counts what is compiled")
def test_answers_are_the_models_own_and_executables_few() -> None:
    text = chargpt.load_data("cpu")
    # The second half asks for what the first has: texts of every length and other characters.
    wanted = requests(text, REQUESTS, most=20)
    assert {bucket_of(len(one.prompt)) for one in wanted[: REQUESTS // 2]} == set(BUCKETS)
    model = trained_model("cpu", text, 2)
    fuse.reset_stats()
    with serving(copy.deepcopy(model).to("tpu"), text) as (port, _):
        answers = ask_all(port, wanted[: REQUESTS // 2], 6, "tpu")
        first = fuse.stats()
        answers += ask_all(port, wanted[REQUESTS // 2 :], 6, "tpu")
    stats = fuse.stats()
    assert stats["compiles"] == first["compiles"]
    memory = stats["cache"]["memory"]
    assert memory["puts"] == first["cache"]["memory"]["puts"] <= MOST_EXECUTABLES
    assert memory["puts"] >= len(BUCKETS) + 1, "nothing has run on the device"
    assert not stats["host_fallbacks"]
    check(text, model, wanted, answers)


@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_what_cannot_be_answered(device: str) -> None:
    text = chargpt.load_data("cpu")
    with serving(trained_model(device, text, 0), text, most_waiting=0) as (port, batcher):
        for body, words in (
            ("{", "JSONDecodeError"),
            ("[]", "TypeError"),
            ('{"prompt": "a"}', "KeyError: 'length'"),
            ('{"prompt": "", "length": 1}', "a prompt has 1 to 128 characters, not 0"),
            ('{"prompt": "\\u2603", "length": 1}', "not in the alphabet"),
            ('{"prompt": "ab", "length": 255}', "1 to 254 characters fit, not 255"),
            (" " * 70000, "at most 65536 bytes"),
        ):
            status, content = asked(port, body)
            assert status == 400 and words in content["error"], (body[:40], content)
        assert asked(port, "{}", "/")[0] == 404
        status, content = asked(port, '{"prompt": "a", "length": 1}')
        assert (status, content) == (503, {"error": "0 texts wait already"})
    with pytest.raises(RuntimeError, match="has ended"):
        batcher.submit([1], 1)


def test_a_failing_step_fails_every_text(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(str(args.exc_value)))
    text = chargpt.load_data("cpu")
    with serving(trained_model("cpu", text, 0), text) as (port, batcher):
        monkeypatch.setattr(StaticCache, "decode", lambda self: 1 / 0)
        assert asked(port, '{"prompt": "a", "length": 2}') == (
            500,
            {"error": "the batcher has failed: division by zero"},
        )
    assert shown == ["division by zero"]
