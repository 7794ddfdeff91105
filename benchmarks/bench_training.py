"""A training step of the LEGO recipe that reads out at the targets, against plain torch at every position.

Both sides sample a batch, and clip gradients and update weights in the same way; after one step their weights agree.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

import interp
from benchmarks.bench_forward import plain
from benchmarks.timing import BenchmarkResult, compare
from hooks import Transformer, TransformerConfig, make_model
from interp.cli import demo_run
from interp.core.randomness import derived_generator
from interp.tasks import Lego
from interp.tasks.base import Task
from interp.training.batches import TrainingBatches
from interp.training.settings import TrainSettings, recipe_for
from interp.training.train import Trainer

BAR = 0.90
STEPS, ROUNDS = 4, 21
"""Steps that are timed at once; number of times."""


class PlainTrainer:
    """Training steps in plain torch: functions on a dictionary of weights.

    Args:
        model: Model whose weights are copied.
        task: The task.
        settings: Training settings without a curriculum.
    """

    def __init__(self, model: Transformer, task: Task, settings: TrainSettings):
        self.cfg: TransformerConfig = model.cfg
        self.task, self.settings = task, settings
        self.weights = {name: weight.detach().clone().requires_grad_() for name, weight in model.named_parameters()}
        parameters = list(self.weights.values())
        self.optimizer = torch.optim.AdamW(
            parameters, betas=settings.betas, weight_decay=settings.weight_decay, fused=True
        )
        self.batches = TrainingBatches(task, settings, 0)
        self.step = 0

    def train_one_step(self) -> float:
        batch = self.batches.batch(self.step, derived_generator(0, "step", self.step))
        logits = plain(self.weights, batch.tokens, self.cfg)
        index = batch.target_positions[..., None].expand(-1, -1, logits.shape[-1])
        loss = F.cross_entropy(logits.gather(1, index).flatten(0, 1), batch.labels.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights.values(), self.settings.clip_norm)
        self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate_at(self.step)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())


def comparisons() -> Iterator[BenchmarkResult]:
    task = Lego(n_vars=6)
    recipe = replace(recipe_for(task), curriculum=(), association="none")
    yield training_step("LEGO preset, 6 x 64, 6 variables", task, interp.config_for(task), recipe)
    settings = replace(demo_run.SETTINGS, association="none")
    yield training_step("model of the demo, 3 x 32", demo_run.TASK, demo_run.CONFIG, settings)


def training_step(name: str, task: Task, cfg: TransformerConfig, settings: TrainSettings) -> BenchmarkResult:
    """CPU time of training steps of both sides, from equal weights and on equal data."""
    model = make_model(cfg, seed=0)
    peer = PlainTrainer(model, task, settings)
    trainer = Trainer(model, task, replace(settings, read_at="targets"), 0)
    trainer.start()

    def train(side: Trainer | PlainTrainer) -> dict[str, Tensor]:
        for _ in range(STEPS):
            side.train_one_step()
            side.step += 1
        weights = peer.weights if side is peer else dict(model.named_parameters())
        return {key: weight.detach().clone() for key, weight in weights.items()}

    def agree(weights: dict[str, Tensor], plain_weights: dict[str, Tensor]) -> None:
        torch.testing.assert_close(weights, plain_weights, atol=1e-4, rtol=0)

    name = f"{name}, {STEPS} training steps"
    return compare(name, lambda: train(trainer), lambda: train(peer), bar=BAR, rounds=ROUNDS, check=agree)
