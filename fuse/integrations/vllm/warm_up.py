"""The steps that a server runs before its first request: one of every shape, as vLLM asks for it.

Their texts lie in page 0, which is nobody's. They go the whole way of a step, so that what is
compiled for them is what requests need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from vllm import SamplingParams
from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput

from fuse.integrations.vllm.buckets import Buckets, Shape

LIKELIEST = SamplingParams(temperature=0.0)
WAYS = (
    LIKELIEST,
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=1.0, top_k=2, top_p=0.9),
)
"""What requests may ask for whose tokens are drawn by different programs."""


def steps(buckets: Buckets, groups: int) -> Iterator[tuple[Shape, Any]]:
    """Every shape, and a step of it as vLLM's scheduler writes it down.

    Drawing tokens is a program of its own, of which the number of texts is all that it knows: it
    is run where that number comes first.

    Args:
        buckets: the shapes.
        groups: of layers whose caches have tables of their own.
    """
    drawn: set[int] = set()
    for shape in buckets.all():
        texts = texts_of(buckets, shape)
        if texts is None:
            continue
        ways = (LIKELIEST,) if shape.rows in drawn else WAYS
        drawn.add(shape.rows)
        for way in ways:
            yield shape, _scheduled(texts, buckets, groups, way)


def texts_of(buckets: Buckets, shape: Shape) -> list[tuple[int, int]] | None:
    """Texts whose step has this shape: their tokens before it, and in it; None if there are none.

    Args:
        buckets: the shapes.
        shape: one of them.
    """
    # The token that is drawn belongs to the text as well.
    longest = min(shape.pages * buckets.page, buckets.longest - 1)
    if shape.width == 1:
        return [(longest - 1, 1)] * shape.tokens
    full, rest = divmod(shape.tokens, longest)
    counts = [longest] * full + [rest] * (rest > 0)
    if len(counts) > buckets.most_texts:
        return None
    return [(longest - count, count) for count in counts]


def _scheduled(
    texts: list[tuple[int, int]], buckets: Buckets, groups: int, way: SamplingParams
) -> Any:
    names = [f"warm-up {number}" for number in range(len(texts))]
    requests = [
        NewRequestData(
            req_id=name,
            prompt_token_ids=[0] * (before + count),
            mm_features=[],
            sampling_params=way,
            pooling_params=None,
            block_ids=([0] * -(-(before + count) // buckets.page),) * groups,
            num_computed_tokens=before,
            lora_request=None,
        )
        for name, (before, count) in zip(names, texts, strict=True)
    ]
    return dataclasses.replace(
        SchedulerOutput.make_empty(),
        scheduled_new_reqs=requests,
        num_scheduled_tokens={name: count for name, (_, count) in zip(names, texts, strict=True)},
        total_num_scheduled_tokens=sum(count for _, count in texts),
        finished_req_ids=set(),
    )


def finished(step: Any) -> Any:
    """What vLLM's scheduler says after a step whose requests are all over."""
    return dataclasses.replace(
        SchedulerOutput.make_empty(), finished_req_ids=set(step.num_scheduled_tokens)
    )
