"""A program of vLLM's user, in a process of its own: texts in, tokens out, as JSON.

``python -m tests.vllm.program JOB RESULT``. A job has the model's folder, the options of ``LLM``,
and calls, each of prompts and of what ``SamplingParams`` is given.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest
from vllm.sampling_params import StructuredOutputsParams

ON_DEVICE = os.environ.get("VLLM_TARGET_DEVICE") != "cpu"


def compiles() -> int:
    """Executables that were compiled in this process: the worker's too, where it is in it."""
    if not ON_DEVICE:
        return 0
    # Not where vLLM runs on the CPU.
    import fuse  # noqa: PLC0415

    return int(fuse.stats()["compiles"])


def parameters(given: dict[str, Any]) -> SamplingParams:
    """What a call asks for; ``choice`` and ``regex`` are vLLM's structured outputs."""
    grammar = {name: given.pop(name) for name in ("choice", "regex") if name in given}
    structured = StructuredOutputsParams(**grammar) if grammar else None
    return SamplingParams(structured_outputs=structured, **given)


def answer(llm: LLM, call: dict[str, Any]) -> list[dict[str, Any]]:
    """Tokens and text of each prompt, with the probabilities of the drawn tokens if asked for."""
    lora = LoRARequest("adapter", 1, call["lora"]) if "lora" in call else None
    outputs = llm.generate(
        call["prompts"], parameters(call["parameters"]), use_tqdm=False, lora_request=lora
    )
    answers = []
    for output in outputs:
        (one,) = output.outputs
        tokens = list(one.token_ids)
        chances = [
            among[token].logprob for among, token in zip(one.logprobs or [], tokens, strict=False)
        ]
        answers.append({"tokens": tokens, "text": one.text, "logprobs": chances})
    return answers


def main() -> None:
    """Run the job; what it gives is written as one JSON object."""
    job = json.loads(Path(sys.argv[1]).read_text())
    llm = LLM(job["model"], **job["options"])
    before = compiles()
    answers = [answer(llm, call) for call in job["calls"]]
    cached = sum(
        metric.value for metric in llm.get_metrics() if metric.name == "vllm:prefix_cache_hits"
    )
    result = {"answers": answers, "compiles": compiles() - before, "cached": cached}
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
