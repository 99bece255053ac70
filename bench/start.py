"""One start of the character GPT on the device, to the end of its second training step.

Run as ``python -m bench.start``; prints JSON: seconds on the clock and of all cores' time,
from the first use of the device (torch is imported, JAX is not) and from the process's start.
"""

from __future__ import annotations

import json
import os
import time

import torch
import torch._dynamo  # every optimizer's constructor imports it, on any device

import fuse
from examples import chargpt

STEPS = 2


def main() -> None:
    """Train two steps and say what they took."""
    imported, imported_cores = time.time(), time.process_time()
    text = chargpt.load_data("tpu")
    model = chargpt.build_model("tpu", text)
    optimizer = chargpt.build_optimizer(model)
    schedule = chargpt.build_schedule(optimizer, 100)
    stream = chargpt.batches(text)
    losses = []
    for _ in range(STEPS):
        losses.append(chargpt.train_step(model, optimizer, *next(stream)).item())
        schedule.step()
    torch.tpu.synchronize()
    done, cores = time.time(), time.process_time()
    stats = fuse.stats()
    found = {
        "from first use": done - imported,
        "from process start": done - float(os.environ["STARTED"]),
        "cores from first use": cores - imported_cores,
        "compiles": stats["compiles"],
        "losses": losses,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
