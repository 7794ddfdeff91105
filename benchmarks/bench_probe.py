"""Probe maps and control relabellings: closed-form ridge, against a scikit-learn loop of logistic regressions."""

from collections.abc import Iterator

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import interp
from benchmarks.timing import BenchmarkResult, compare
from hooks import Transformer
from interp.core.activations import residuals_at_targets
from interp.probing.ridge import fit
from interp.tasks import S3, Lego

N, WIDTH, CLASSES, DRAWS = 2000, 64, 6, 50
TRAIN, TEST = slice(0, N // 2), slice(N // 2, N)
TASK = Lego(n_vars=8, group=S3, sentence_format="compact")
LAYERS = 4  # with the embedding's output and 8 variables: 40 sites


def sites(steps: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Residual streams (site, sample, d_model) of a model after a number of steps, and the operation of each clause."""
    model = Transformer(interp.config_for(TASK, d_model=WIDTH, n_heads=4, n_layers=LAYERS), seed=seed)
    settings = interp.TrainSettings(curriculum=((2, steps),), tokens_per_step=768, n_eval=100)
    interp.train(model, TASK, settings, seed=seed)
    batch = TASK.sample(N, generator=torch.Generator().manual_seed(seed), split="test")
    inputs = residuals_at_targets(model, batch).flatten(0, 1)
    return inputs, batch.operations.T.repeat(LAYERS + 1, 1)


def logistic() -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def comparisons() -> Iterator[BenchmarkResult]:
    with threadpool_limits(1):
        # while the model learns to read its clauses, and after
        for steps in (130, 400):
            yield probe_map(*sites(steps), f"after {steps} steps")
        yield relabellings(sites(130)[0])


def probe_map(inputs: torch.Tensor, labels: torch.Tensor, model: str) -> BenchmarkResult:
    def unmyopic() -> np.ndarray:
        classifier = fit(inputs[:, TRAIN], labels[:, None, TRAIN], CLASSES)
        return classifier.accuracy(inputs[:, TEST], labels[:, None, TEST])[:, 0].numpy()

    def peer() -> np.ndarray:
        x, y = inputs.numpy(), labels.numpy()
        return np.array([logistic().fit(a[TRAIN], b[TRAIN]).score(a[TEST], b[TEST]) for a, b in zip(x, y, strict=True)])

    gap = unmyopic() - peer()
    name = f"probe map, {model}, gap {np.abs(gap).mean():.4f} (ours {gap.mean():+.4f})"
    return compare(name, unmyopic, peer, bar=0.20, rounds=5)


def relabellings(inputs: torch.Tensor) -> BenchmarkResult:
    site = inputs[-1:]
    controls = torch.randint(CLASSES, (DRAWS, N), generator=torch.Generator().manual_seed(1))

    def unmyopic() -> np.ndarray:
        classifier = fit(site[:, TRAIN], controls[None, :, TRAIN], CLASSES)
        return classifier.accuracy(site[:, TEST], controls[None, :, TEST])[0].numpy()

    def peer() -> np.ndarray:
        x = site[0].numpy()
        return np.array([logistic().fit(x[TRAIN], y[TRAIN]).score(x[TEST], y[TEST]) for y in controls.numpy()])

    gap = abs(unmyopic().mean() - peer().mean())
    return compare(f"{DRAWS} control relabellings, gap of means {gap:.4f}", unmyopic, peer, bar=0.05, rounds=5)
