"""Drawing the next tokens on the device: vLLM's sampler at a padded number of texts.

The common ways are computed on the device: the likeliest token, temperature, top-k and top-p, and
the probabilities that go with it. What else a request may ask for is rare, and has state of vLLM's
on the host: there vLLM's own sampler draws, of logits that were copied.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch
from vllm.v1.sample.sampler import Sampler

GREEDY = 1e-5
"""Temperatures below mean the likeliest token: vLLM's own bound."""


class DeviceSampler(Sampler):
    """vLLM's sampler, in operators of which every size is the step's."""

    def sample(
        self, logits: torch.Tensor, sampling_metadata: Any, logprobs_mode_override: Any = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The next token of each row, and logits or their probabilities if asked for.

        Args:
            logits: ``[rows, vocabulary]``, float32.
            sampling_metadata: vLLM's; its tensors are the device's.
            logprobs_mode_override: vLLM's modes of probabilities.
        """
        likeliest = logits.argmax(dim=-1)
        if sampling_metadata.all_greedy:
            return likeliest, self._processed(logits, logprobs_mode_override)
        temperature = sampling_metadata.temperature
        greedy = temperature < GREEDY
        logits = logits / torch.where(greedy, 1.0, temperature)[:, None]
        if sampling_metadata.top_k is not None:
            logits = apply_top_k_top_p_pytorch(
                logits, sampling_metadata.top_k, sampling_metadata.top_p
            )
        noise = torch.empty_like(logits).exponential_()
        drawn = (logits.softmax(dim=-1) / noise).argmax(dim=-1)
        tokens = torch.where(greedy, likeliest, drawn)
        return tokens, self._processed(logits, logprobs_mode_override)

    def _processed(self, logits: torch.Tensor, override: Any) -> torch.Tensor | None:
        mode = override or self.logprobs_mode
        if mode == "processed_logits":
            return logits
        return logits.log_softmax(dim=-1) if mode == "processed_logprobs" else None

    @staticmethod
    def gather_logprobs(
        logprobs: torch.Tensor, num_logprobs: int, token_ids: torch.Tensor
    ) -> LogprobsTensors:
        """The drawn token and the likeliest ``num_logprobs``, with the drawn one's rank.

        Args:
            logprobs: ``[rows, vocabulary]``.
            num_logprobs: how many beside the drawn one.
            token_ids: ``[rows]``: the drawn ones.
        """
        best, indices = torch.topk(logprobs, num_logprobs, dim=-1)
        # Of a prompt, whose probabilities are asked for, the tokens are the host's.
        drawn = token_ids.to(logprobs.device)[:, None]
        own = logprobs.gather(-1, drawn)
        return LogprobsTensors(
            torch.cat((drawn, indices), dim=1).to(torch.int32),
            torch.cat((own, best), dim=1),
            (logprobs >= own).sum(dim=-1),
        )


def on_device(metadata: Any) -> bool:
    """Whether ``DeviceSampler`` computes all that a batch's requests ask for."""
    return not (
        metadata.generators
        or not metadata.no_penalties
        or metadata.allowed_token_ids_mask is not None
        or metadata.bad_words_token_ids
        or metadata.logprob_token_ids
        or metadata.output_token_ids
        or any(map(_asked, metadata.logitsprocs.all))
    )


def _asked(processor: Any) -> bool:
    """Whether a processor of logits does anything for this batch; one that is not vLLM's may."""
    states = {"MinPLogitsProcessor": "min_p_count", "LogitBiasLogitsProcessor": "biases"}
    states["MinTokensLogitsProcessor"] = "min_toks"
    state = states.get(type(processor).__name__)
    return state is None or bool(getattr(processor, state))


def padded(metadata: Any, rows: int, vocabulary: int) -> Any:
    """The metadata with tensors of ``rows`` on the device.

    There are three programs for each number of rows: the likeliest token, one drawn of all, one
    drawn of the likeliest (top-k and top-p; sorting is what it takes).

    Args:
        metadata: vLLM's, of which ``on_device`` is true.
        rows: texts of the padded step.
        vocabulary: tokens that there are; as a top-k it means all of them.
    """
    if metadata.all_greedy:
        return metadata
    narrowed = metadata.top_k is not None or metadata.top_p is not None
    values = np.empty((3 if narrowed else 1, rows), np.float32)
    asked = zip(
        values,
        (metadata.temperature, metadata.top_k, metadata.top_p),
        (0.0, vocabulary, 1.0),
        strict=False,
    )
    for value, given, neutral in asked:
        value[:] = neutral
        if given is not None:
            value[: len(given)] = given.numpy()
    temperature, *others = torch.from_numpy(values).to("tpu").unbind()
    top_k, top_p = (others[0].int(), others[1]) if narrowed else (None, None)
    return dataclasses.replace(
        metadata, temperature=temperature, top_k=top_k, top_p=top_p, all_random=False
    )


def to_host(output: SamplerOutput, texts: int) -> SamplerOutput:
    """The first ``texts`` rows, on the host."""
    probabilities = output.logprobs_tensors
    if probabilities is not None:
        parts = [part.cpu()[:texts] for part in probabilities[:3]]
        probabilities = LogprobsTensors(*parts)
    return SamplerOutput(
        sampled_token_ids=output.sampled_token_ids.cpu()[:texts], logprobs_tensors=probabilities
    )


def allowed(logits: torch.Tensor, rows: list[int], bits: np.ndarray) -> torch.Tensor:
    """The logits, with those that a grammar forbids at minus infinity.

    Args:
        logits: ``[R, vocabulary]``, of the device.
        rows: those that have a grammar.
        bits: ``[len(rows), words]``, int32: a bit a token, the lowest first; 1 is allowed.
    """
    words = np.full((len(logits), bits.shape[1]), -1, np.int32)
    words[rows] = bits
    shifts = torch.arange(32, device=logits.device, dtype=torch.int32)
    mask = (torch.from_numpy(words).to(logits.device)[..., None] >> shifts) & 1
    mask = mask.view(len(logits), -1)[:, : logits.shape[1]]
    return logits.masked_fill(mask == 0, float("-inf"))
