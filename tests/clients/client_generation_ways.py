"""What transformers' shared test class of generation checks, against the CPU.

That class (`GenerationTesterMixin`) is in no distribution. Every way is run six times for each
architecture, so that what has come back is run as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.clients.conftest import Case
from tests.clients.steps import agree
from tests.clients.writers import ATTENDING, DECODERS, WRITERS, given, given_draws, padded, writer

LIBRARY = "transformers"
TOKENS = 10

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "without a cache": {"use_cache": False},
    "4 beams, length penalty": {"num_beams": 4, "length_penalty": 2.0},
    "3 of 4 beams, early stopping": {
        "num_beams": 4,
        "num_return_sequences": 3,
        "early_stopping": True,
        "eos_token_id": [7, 9, 11, 13, 15],
    },
    "until one of five tokens": {"eos_token_id": [7, 9, 11, 13, 15], "min_new_tokens": 3},
    "repetitions punished": {"repetition_penalty": 1.8, "no_repeat_ngram_size": 2},
    "tokens forbidden and favoured": {
        "bad_words_ids": [[5], [6, 7]],
        "suppress_tokens": [0, 1, 8, 9],
        "sequence_bias": [[[10], 4.0], [[11, 12], 3.0]],
        "forced_eos_token_id": 3,
    },
    "guided": {"guidance_scale": 1.5},
    "in chunks of 2": {"prefill_chunk_size": 2},
}
DRAWN: dict[str, dict[str, Any]] = {
    "top k, top p, temperature": {"top_k": 12, "top_p": 0.9, "temperature": 1.5},
    "min p, typical": {"top_k": 0, "min_p": 0.05, "typical_p": 0.9},
    "epsilon and eta": {"top_k": 0, "epsilon_cutoff": 0.02, "eta_cutoff": 0.02},
    "3 sequences": {"num_return_sequences": 3},
    "4 beams": {"num_beams": 4},
}


def generated(model: Any, inputs: dict[str, Any], **options: Any) -> Any:
    """Tokens that ``model`` goes on with."""
    options = {"max_new_tokens": TOKENS, "do_sample": False, **options}
    return model.generate(**inputs, **options)


@pytest.mark.parametrize("way", WAYS)
def test_way(case: Case, way: str) -> None:
    """`generate` of nine architectures, CPU's tokens"""
    names = WRITERS
    if way in ("guided", "in chunks of 2"):
        names = ATTENDING

    def call(name: str, device: str) -> Callable[[], Any]:
        model, inputs = writer(name, device), given(name, device)
        return lambda: generated(model, inputs, **WAYS[way]).tolist()

    agree(case, names, call)


@pytest.mark.parametrize("way", DRAWN)
def test_drawn(case: Case, way: str) -> None:
    """`generate(do_sample=True)` of nine architectures, numbers given: CPU's tokens"""

    def call(name: str, device: str) -> Callable[[], Any]:
        model, inputs = writer(name, device), given(name, device)

        def once() -> Any:
            with given_draws():
                return generated(model, inputs, do_sample=True, **DRAWN[way]).tolist()

        return once

    agree(case, WRITERS, call)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_padding(case: Case, cache: str) -> None:
    """`generate` of six architectures, prompts padded on the left: as without padding"""

    def call(name: str, device: str) -> Callable[[], Any]:
        model, inputs = writer(name, device), padded(device)
        short = inputs["input_ids"][:1, 2:]

        def once() -> Any:
            both = generated(model, inputs, cache_implementation=cache)[:, 5:]
            alone = generated(model, {"input_ids": short}, cache_implementation=cache)[:, 3:]
            assert both[:1].tolist() == alone.tolist()
            return both.tolist()

        return once

    agree(case, ATTENDING, call)


def test_embeddings(case: Case) -> None:
    """`generate(inputs_embeds=...)` of seven architectures: the tokens of `input_ids`"""

    def call(name: str, device: str) -> Callable[[], Any]:
        model, inputs = writer(name, device), given(name, device)

        def once() -> Any:
            embedded = model.get_input_embeddings()(inputs["input_ids"])
            if name == "Gemma 2":  # scales inside the model since 5.0
                assert embedded.shape[-1] == model.config.hidden_size
            tokens = generated(model, {"inputs_embeds": embedded}).tolist()
            assert tokens == generated(model, inputs)[:, 5:].tolist()
            return tokens

        return once

    agree(case, DECODERS, call)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_continued(case: Case, cache: str) -> None:
    """`generate` that goes on from its own cache: the tokens of one call"""

    def call(name: str, device: str) -> Callable[[], Any]:
        model, inputs = writer(name, device), given(name, device)

        def once() -> Any:
            options = {"cache_implementation": cache, "return_dict_in_generate": True}
            options |= {"max_cache_len": 32} if cache == "static" else {}
            begun = generated(model, inputs, max_new_tokens=4, **options)
            rest = {"input_ids": begun.sequences, "past_key_values": begun.past_key_values}
            whole = generated(model, rest, max_new_tokens=6).tolist()
            assert whole == generated(model, inputs).tolist()
            return whole

        return once

    agree(case, ATTENDING, call)


def test_outputs(case: Case) -> None:
    """`generate` that returns logits, scores, hidden states and attentions: CPU's"""
    wanted = ("logits", "scores", "hidden_states", "attentions", "decoder_hidden_states")

    def call(name: str, device: str) -> Callable[[], Any]:
        model, inputs = writer(name, device), given(name, device)
        if name != "Mamba":
            model.set_attn_implementation("eager")

        def once() -> Any:
            asked = {f"output_{part}": True for part in wanted[:3]}
            asked["output_attentions"] = name != "Mamba"
            found = generated(model, inputs, return_dict_in_generate=True, **asked)
            kept = [found.get(part) for part in wanted]
            return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, kept)

        return once

    agree(case, WRITERS, call)


@pytest.mark.parametrize("how", ["another model", "prompt lookup", "its own first layer"])
def test_assisted(case: Case, how: str) -> None:
    """`generate`, assisted, of six architectures: the greedy tokens"""

    def call(name: str, device: str) -> Callable[[], Any]:
        model, inputs = writer(name, device), given(name, device, rows=1)
        options: dict[str, Any] = {
            "another model": {"assistant_model": writer(name, device, seed=1)},
            "prompt lookup": {"prompt_lookup_num_tokens": 3},
            "its own first layer": {"assistant_early_exit": 1},
        }[how]

        def once() -> Any:
            tokens = generated(model, inputs, **options).tolist()
            assert tokens == generated(model, inputs).tolist()
            return tokens

        return once

    agree(case, ATTENDING if how != "its own first layer" else ("Llama",), call)


def test_compiled(case: Case) -> None:
    """`generate` with `torch.compile(model.forward)` and a static cache: CPU's tokens"""

    def call(name: str, device: str) -> Callable[[], Any]:
        model, inputs = writer(name, device), given(name, device)
        if device != "cpu":
            torch._dynamo.reset()  # of one function it compiles eight times at most
            model.forward = torch.compile(model.forward, fullgraph=True)
        return lambda: generated(model, inputs, cache_implementation="static").tolist()

    agree(case, ("Llama", "GPT-2"), call)


def test_streamed(case: Case) -> None:
    """`generate(streamer=...)`: each token as it is written"""

    class Heard:
        def __init__(self) -> None:
            self.tokens: list[Any] = []
            self.ended = False

        def put(self, value: torch.Tensor) -> None:
            self.tokens.append(value.tolist())

        def end(self) -> None:
            self.ended = True

    def call(name: str, device: str) -> Callable[[], Any]:
        model, inputs = writer(name, device), given(name, device, rows=1)

        def once() -> Any:
            heard = Heard()
            generated(model, inputs, streamer=heard)
            assert heard.ended
            return heard.tokens

        return once

    agree(case, WRITERS, call)
