from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from tests.clients.conftest import Case
from tests.clients.steps import normal, training

LIBRARY = "torchrl"


def test_ppo(case: Case) -> None:
    """`ClipPPOLoss` with `GAE` on recorded steps of two environments: training steps."""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        policy = TensorDictModule(torch.nn.Linear(4, 3), ["observation"], ["logits"])
        actor = ProbabilisticActor(
            policy, in_keys=["logits"], distribution_class=OneHotCategorical, return_log_prob=True
        )
        critic = ValueOperator(torch.nn.Linear(4, 1), in_keys=["observation"])
        loss_of = ClipPPOLoss(actor, critic, entropy_bonus=True).to(device)
        advantage = GAE(gamma=0.9, lmbda=0.9, value_network=critic)
        actions = torch.eye(3)[torch.arange(10).reshape(2, 5) % 3]
        data = TensorDict(
            {
                "observation": normal(2, 5, 4),
                "action": actions,
                "action_log_prob": torch.full((2, 5), -1.0986),
                "next": {
                    "observation": normal(2, 5, 4, seed=2),
                    "reward": normal(2, 5, 1, seed=3),
                    "done": torch.zeros(2, 5, 1, dtype=torch.bool),
                    "terminated": torch.zeros(2, 5, 1, dtype=torch.bool),
                },
            },
            batch_size=[2, 5],
        ).to(device)

        def loss() -> torch.Tensor:
            with torch.no_grad():
                advantage(data)
            parts = loss_of(data)
            value: torch.Tensor = parts["loss_objective"] + parts["loss_critic"]
            return value + parts["loss_entropy"]

        return training(loss_of, loss, count=4)

    device, cpu = case.compare(run)
    torch.testing.assert_close(device, cpu, rtol=1e-3, atol=1e-4)
