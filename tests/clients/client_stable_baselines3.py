from __future__ import annotations

import time
from typing import Any

import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback

from tests.clients.conftest import Case

LIBRARY = "stable-baselines3"


class Losses(BaseCallback):
    """Seconds and loss of each update of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[float, Any]] = []
        self.start = 0.0

    def _on_rollout_end(self) -> None:
        self.start = time.perf_counter()

    def _on_rollout_start(self) -> None:
        loss = self.logger.name_to_value.get("train/loss")
        if loss is not None:
            self.steps.append((time.perf_counter() - self.start, float(loss)))

    def _on_step(self) -> bool:
        return True


def test_dqn(case: Case) -> None:
    """`DQN("MlpPolicy", "CartPole-v1", device=...)`: `learn`, then the policy's actions."""
    values = {}

    def run(device: str) -> list[tuple[float, Any]]:
        model = stable_baselines3.DQN(
            "MlpPolicy",
            "CartPole-v1",
            learning_starts=20,
            train_freq=10,
            target_update_interval=20,
            seed=0,
            device=device,
            policy_kwargs={"net_arch": [16]},
        )
        losses = Losses()
        model.learn(100, callback=losses)
        assert model.device.type == device
        points = torch.linspace(-1, 1, 20).reshape(5, 4).to(device)
        with torch.no_grad():
            values[device] = model.q_net(points).cpu()
        return losses.steps

    device, cpu = case.compare(run)
    assert len(cpu) >= 7
    torch.testing.assert_close(device, cpu, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(values["tpu"], values["cpu"], rtol=1e-3, atol=1e-3)
