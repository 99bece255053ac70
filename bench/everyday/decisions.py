"""The host decides by what it reads: acting, generating, evaluating; shapes that vary."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

from bench.everyday.common import Loop, Step, batches, classes, gpt, mlp, next_token_loss


def decoding(device: str) -> Step:
    """Greedy decoding without a cache: prompts of 8 tokens grow to 72, a token a step."""
    model = gpt(device, layers=3, length=72).eval()
    prompts = torch.randint(0, 96, (4, 1, 8))

    def steps() -> Iterator[float]:
        for number in itertools.count():
            tokens = prompts[number % 4].to(device)
            while tokens.shape[1] < 72:
                with torch.no_grad():
                    token = model(tokens)[:, -1].argmax(-1, keepdim=True)
                tokens = torch.cat([tokens, token], 1)
                yield float(token.item())

    return steps().__next__


class Pendulum:
    """An environment in Python: a state of four numbers, two actions."""

    def __init__(self) -> None:
        self.state = [0.0, 0.0, 0.05, 0.0]

    def step(self, action: int) -> tuple[list[float], float]:
        """The next state, and a reward for staying upright."""
        x, speed, angle, turn = self.state
        push = 0.1 if action else -0.1
        speed, turn = 0.9 * speed + push, 0.9 * turn + 0.2 * angle - push
        self.state = [0.9 * x + 0.1 * speed, speed, max(-1.0, min(1.0, angle + 0.1 * turn)), turn]
        return self.state, 1.0 - abs(angle)


def reinforce(device: str) -> Step:
    """Episodes of eight actions, each sampled and read; one update an episode."""
    torch.manual_seed(0)
    policy = mlp(4, 64, 2).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)

    def step() -> float:
        environment, chances, rewards = Pendulum(), [], []
        state = environment.state
        for _ in range(8):
            choice = Categorical(logits=policy(torch.tensor(state, device=device)))
            action = choice.sample()
            chances.append(choice.log_prob(action))
            state, reward = environment.step(int(action.item()))
            rewards.append(reward)
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        returns = ((returns - returns.mean()) / (returns.std() + 1e-6)).to(device)
        loss = -(torch.stack(chances) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def q_learning(device: str) -> Step:
    """A replay buffer on the device, a target net, and actions by chance or by a read."""
    torch.manual_seed(0)
    net, target = mlp(4, 64, 64, 2).to(device), mlp(4, 64, 64, 2).to(device)
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    states, nexts = torch.zeros(1000, 4, device=device), torch.zeros(1000, 4, device=device)
    actions = torch.zeros(1000, dtype=torch.long, device=device)
    rewards = torch.zeros(1000, device=device)
    chance, environment = random.Random(0), Pendulum()

    def act(state: torch.Tensor) -> int:
        if chance.random() < 0.1:
            return chance.randrange(2)
        with torch.no_grad():
            return int(net(state.unsqueeze(0)).argmax(1).item())

    def learn(filled: int) -> torch.Tensor:
        at = torch.tensor([chance.randrange(filled) for _ in range(32)]).to(device)
        with torch.no_grad():
            wanted = rewards[at] + 0.99 * target(nexts[at]).max(1).values
        found = net(states[at]).gather(1, actions[at].unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(found, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def steps() -> Iterator[torch.Tensor]:
        state = torch.tensor(environment.state).to(device)
        for number in itertools.count():
            place, action = number % 1000, act(state)
            found, reward = environment.step(action)
            after = torch.tensor(found).to(device)
            states[place], nexts[place] = state, after
            actions[place], rewards[place] = action, reward
            state = after
            loss = learn(min(number + 1, 1000))
            if number % 50 == 49:
                target.load_state_dict(net.state_dict())
            yield loss

    return steps().__next__


class Actor(nn.Module):
    """A policy and a value over a common body."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.act, self.value = mlp(4, 64, 64, act=nn.Tanh), mlp(64, 2), mlp(64, 1)

    def forward(self, x: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        h = self.body(x).tanh()
        return Categorical(logits=self.act(h)), self.value(h).squeeze(-1)


def rollout(model: Actor, worlds: list[Pendulum], device: str) -> list[torch.Tensor]:
    """Eight actions in each world: states, actions, log-probabilities and returns, flat."""
    kept: list[tuple[torch.Tensor, ...]] = []
    rewards = []
    with torch.no_grad():
        for _ in range(8):
            state = torch.tensor([world.state for world in worlds], device=device)
            choice, value = model(state)
            action = choice.sample()
            moves = zip(worlds, action.tolist(), strict=True)
            rewards.append([world.step(move)[1] for world, move in moves])
            kept.append((state, action, choice.log_prob(action), value))
    gains, running = [], torch.zeros(len(worlds))
    for reward in reversed(rewards):
        running = torch.tensor(reward) + 0.95 * running
        gains.append(running)
    parts = [torch.cat(part) for part in zip(*kept, strict=True)]
    return [*parts, torch.cat(gains[::-1]).to(device)]


def ppo(device: str) -> Step:
    """Rollouts in eight worlds, then two epochs of two minibatches with the clipped objective."""
    torch.manual_seed(0)
    model = Actor().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, eps=1e-5)
    order = torch.Generator().manual_seed(0)

    def update(state: Any, action: Any, before: Any, value: Any, gain: Any) -> torch.Tensor:
        choice, now = model(state)
        ratio = (choice.log_prob(action) - before).exp()
        better = gain - value
        better = (better - better.mean()) / (better.std() + 1e-8)
        clipped = torch.min(ratio * better, ratio.clamp(0.8, 1.2) * better).mean()
        loss = 0.5 * F.mse_loss(now, gain) - clipped - 0.01 * choice.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    def step() -> float:
        parts = rollout(model, [Pendulum() for _ in range(8)], device)
        for _ in range(2):
            for at in torch.randperm(64, generator=order).split(32):
                at = at.to(device)
                loss = update(*(part[at] for part in parts))
        return loss.item()

    return step


class Messages(nn.Module):
    """One round of messages along the edges of a graph."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(2 * width, width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, source: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
        sent = F.relu(self.message(torch.cat([x[source], x[to]], 1)))
        got = torch.zeros_like(x).index_add_(0, to, sent)
        return x + F.relu(self.update(torch.cat([x, got], 1)))


def graphs(device: str) -> Step:
    """A graph net on 64 graphs of 10 to 40 nodes, a graph a step."""
    torch.manual_seed(0)
    rounds = nn.ModuleList(Messages(32) for _ in range(3)).to(device)
    first, last = nn.Linear(8, 32).to(device), nn.Linear(32, 1).to(device)
    parts = nn.ModuleList([rounds, first, last])
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-3)
    sizes = torch.randint(10, 41, (64,)).tolist()
    data = [(torch.randn(size, 8), torch.randint(0, size, (2, 3 * size))) for size in sizes]

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            nodes, edges = (part.to(device) for part in data[number % 64])
            x = first(nodes)
            for one in rounds:
                x = one(x, edges[0], edges[1])
            loss = (last(x.mean(0)) - nodes.mean()).square().squeeze()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 10 == 0:
                loss.item()
            yield loss.detach()

    return steps().__next__


def ragged(device: str) -> Step:
    """A GRU on packed batches of sequences of 5 to 20 steps."""
    torch.manual_seed(0)
    model, head = nn.GRU(16, 32, batch_first=True).to(device), nn.Linear(32, 4).to(device)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
    lengths = [torch.randint(5, 21, (8,)) for _ in range(32)]
    data = [[torch.randn(length, 16) for length in batch.tolist()] for batch in lengths]
    labels = torch.randint(0, 4, (32, 8))

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            x = pad_sequence(data[number % 32], batch_first=True).to(device)
            packed = pack_padded_sequence(
                x, lengths[number % 32], batch_first=True, enforce_sorted=False
            )
            loss = F.cross_entropy(head(model(packed)[1][-1]), labels[number % 32].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 10 == 0:
                loss.item()
            yield loss.detach()

    return steps().__next__


def evaluation(device: str) -> Step:
    """Epochs of ten steps, each followed by an evaluation of three batches."""
    torch.manual_seed(0)
    net = nn.Sequential(mlp(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
    net = net.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, y = classes(320, 64)
    held = [part.split(50) for part in classes(150, 64, seed=1)]

    def evaluate() -> float:
        net.eval()
        right = 0
        with torch.no_grad():
            for inputs, labels in zip(*held, strict=True):
                right += (net(inputs.to(device)).argmax(1) == labels.to(device)).sum().item()
        net.train()
        return right / 150

    def steps() -> Iterator[torch.Tensor]:
        while True:
            for inputs, labels in zip(x.split(32), y.split(32), strict=True):
                loss = F.cross_entropy(net(inputs.to(device)), labels.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                yield loss.detach()
            evaluate()

    return steps().__next__


def generation(device: str) -> Step:
    """Training a character model; every ten steps it writes eight tokens."""
    model = gpt(device, length=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randint(0, 96, (16, 8, 33))

    @torch.no_grad()
    def write() -> list[int]:
        model.eval()
        tokens = torch.zeros(1, 1, dtype=torch.long, device=device)
        for _ in range(8):
            token = model(tokens)[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, token], 1)
        model.train()
        return tokens[0].tolist()

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            loss = next_token_loss(model, data[number % 16].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 10 == 0:
                write()
            yield loss.detach()

    return steps().__next__


class Metrics:
    """A callback that accumulates on the device and reads when it logs."""

    def __init__(self, every: int, device: str) -> None:
        self.every, self.device, self.log = every, device, [0.0, 0.0]
        self.reset()

    def reset(self) -> None:
        """Start counting anew."""
        self.right = torch.zeros((), dtype=torch.long, device=self.device)
        self.loss, self.seen = torch.zeros((), device=self.device), 0

    def on_batch_end(self, number: int, loss: Any, logits: Any, labels: Any) -> None:
        """Count a batch; every some batches log the means."""
        self.right += (logits.argmax(1) == labels).sum()
        self.loss += loss * len(labels)
        self.seen += len(labels)
        if number % self.every == 0:
            self.log = [self.right.item() / self.seen, self.loss.item() / self.seen]
            self.reset()


def trainer(device: str) -> Step:
    """A trainer with callbacks: metrics on the device, logged every ten steps, a closure."""
    torch.manual_seed(0)
    model = mlp(64, 128, 128, 10, act=nn.GELU).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    callbacks = [Metrics(10, device), Metrics(50, device)]
    data = batches(*classes(640, 64), size=32)

    def training_step(inputs: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logits = model(inputs)
        return F.cross_entropy(logits, labels), logits

    def run(inputs: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found: list[torch.Tensor] = []

        def closure() -> torch.Tensor:
            loss, logits = training_step(inputs, labels)
            optimizer.zero_grad()
            loss.backward()
            found.extend((loss.detach(), logits.detach()))
            return loss

        optimizer.step(closure)
        return found[0], found[1]

    def steps() -> Iterator[torch.Tensor]:
        for number in itertools.count(1):
            inputs, labels = (part.to(device) for part in next(data))
            loss, logits = run(inputs, labels)
            for callback in callbacks:
                callback.on_batch_end(number, loss, logits, labels)
            yield loss

    return steps().__next__


LOOPS = (
    Loop("decoding", decoding, 64),
    Loop("reinforce", reinforce, draws=True),
    Loop("q-learning", q_learning, 50),
    Loop("ppo", ppo, draws=True),
    Loop("graphs", graphs, 64),
    Loop("ragged", ragged, 32),
    Loop("evaluation", evaluation, 10),
    Loop("generation", generation, 10),
    Loop("trainer", trainer, 50),
)
