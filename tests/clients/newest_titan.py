"""TorchTitan's own trainer and models, unmodified, on the device: ``make clients-titan``."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ROOT = Path(__file__).parents[2]
STEPS = 4
SECONDS = 1200.0
"""Of one run; the first one of all compiles the native core."""
COMMON = (
    *("--training.local_batch_size", "2", "--training.seq_len", "256", "--debug.seed", "1"),
    *("--validator.freq", "1000", "--training.steps", str(STEPS)),
)
TENSOR_PARALLEL = (
    *("--parallelism.tensor_parallel_degree", "2"),
    *("--parallelism.spmd-backend", "partial_dtensor"),
)
ON_CPU = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCHDYNAMO_DISABLE": "1"}
LOSS = re.compile(r"loss: +([0-9.]+|nan|inf)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Titan:
    """A folder of TorchTitan's form: a tokenizer and texts where its models look for them."""

    folder: Path

    def train(
        self, out: str, config: str, *options: str, cpu: bool = False, ranks: int = 1
    ) -> list[float]:
        """The losses that a run prints, each step's; ``config`` is ``module.function``."""
        module, function = config.split(".")
        asked = ["--module", module, "--config", function, *COMMON, *options]
        program = "tests.clients.titan_on_cpu" if cpu else "torchtitan.train"
        launch = ["-m", program]
        if ranks > 1:
            launch = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", *launch]
        done = subprocess.run(
            [sys.executable, *launch, *asked, "--dump_folder", str(self.folder / out)],
            cwd=self.folder,
            env=_settings(cpu, ranks),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert "HostFallbackWarning" not in done.stderr
        found = [float(loss) for loss in LOSS.findall(COLOURS.sub("", done.stderr + done.stdout))]
        return found[:: ranks if ranks > 1 and len(found) > STEPS else 1]


def _settings(cpu: bool, ranks: int) -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WANDB_MODE": "disabled"}
    settings = os.environ | given | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return settings | (alone if ranks == 1 else {}) | (ON_CPU if cpu else {})


@pytest.fixture(scope="module")
def titan(tmp_path_factory: pytest.TempPathFactory) -> Titan:
    folder = tmp_path_factory.mktemp("titan")
    assets = folder / "tests/assets"
    for name in ("tokenizer", "c4_test"):
        (assets / name).mkdir(parents=True)
    pages = (page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))
    texts = [part for page in pages for part in page.split("\n\n") if len(part) > 80]
    bounds = ["<|begin_of_text|>", "<|end_of_text|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=2000, special_tokens=bounds, initial_alphabet=alphabet),
    )
    tokenizer.save(str(assets / "tokenizer/tokenizer.json"))
    settings = dict(zip(("bos_token", "eos_token"), bounds, strict=True))
    (assets / "tokenizer/tokenizer_config.json").write_text(json.dumps(settings))
    lines = [
        json.dumps({"text": "\n\n".join(texts[at : at + 4])}) for at in range(0, len(texts), 4)
    ]
    (assets / "c4_test/data.json").write_text("\n".join(lines))
    return Titan(folder)


@pytest.fixture(autouse=True)
def no_checkpoints_are_left(titan: Titan) -> Iterator[None]:
    """Those of a model with experts have gigabytes."""
    yield
    for out in titan.folder.glob("*/checkpoint"):
        shutil.rmtree(out)


def close(found: Sequence[float], expected: Sequence[float]) -> None:
    assert len(found) == len(expected) == STEPS
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    "config",
    [
        "llama3.llama3_debugmodel",
        "qwen3.qwen3_debugmodel",
        "qwen3.qwen3_moe_debug",
        "deepseek_v3.deepseek_v3_debugmodel",
    ],
)
def test_losses_are_the_cpus_from_its_seed_checkpoint(titan: Titan, config: str) -> None:
    kept = "--checkpoint.enable"
    titan.train("seed", config, kept, "--checkpoint.create_seed_checkpoint", cpu=True)
    expected = titan.train("seed", config, kept, "--checkpoint.load_only", cpu=True)
    close(titan.train("seed", config, kept, "--checkpoint.load_only"), expected)


@pytest.mark.parametrize(
    "config",
    [
        "llama3.llama3_debugmodel_varlen_attn",
        "llama3.llama3_debugmodel_ce_loss",
        "gpt_oss.gpt_oss_debugmodel",
        "gpt_oss.gpt_oss_debugmodel_flex",
        "deepseek_v3.deepseek_v3_debugmodel_mtp",
        "muse_glimmer.muse_glimmer_debugmodel",
    ],
)
def test_others_are_trained(titan: Titan, config: str) -> None:
    """Some need kernels that the CPU lacks: these are not compared with it."""
    losses = titan.train("alone", config)
    assert len(losses) == STEPS and all(math.isfinite(loss) for loss in losses)


@pytest.mark.parametrize(
    "options",
    [(), TENSOR_PARALLEL],
    ids=["FSDP2", "tensor parallel"],
)
def test_two_ranks(titan: Titan, options: tuple[str, ...]) -> None:
    losses = titan.train("two", "llama3.llama3_debugmodel", *options, ranks=2)
    assert len(losses) == STEPS and losses[-1] < losses[0]


def test_what_is_resumed_goes_on_as_it_would_have(titan: Titan) -> None:
    config, half = "llama3.llama3_debugmodel", str(STEPS // 2)
    options = ("--checkpoint.enable", "--checkpoint.interval", half)
    whole = titan.train("resumed", config, *options)
    shutil.rmtree(titan.folder / f"resumed/checkpoint/step-{STEPS}")
    rest = titan.train("resumed", config, *options)
    assert rest == pytest.approx(whole[STEPS // 2 :], rel=1e-3)
