"""Memory does not grow with the number of examples: peaks of new processes at n and 8 n."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.core import activations
from interp.core.read_out import contrasts_of, mean_contrasts
from interp.heads import kinds, measures
from interp.probing import directions, scoring
from interp.tasks import Dyck, Lego

PEAK = """
import resource
import torch, interp
from hooks import Transformer
from interp.comparison import variation
from interp.core import activations
from interp.heads import kinds, measures
from interp.probing import scoring
from interp.tasks import Dyck, Lego

torch.set_num_threads(1)
activations.CHUNK, activations.EXAMPLES_PER_BLOCK, scoring.EXAMPLES_PER_BLOCK = 64, 256, 256
measures.CELLS = kinds.RELATION_CELLS = 2**18
variation.WEIGHTS = 2**20

def model(task, **sizes):
    return Transformer(interp.config_for(task, n_heads=2, **sizes), seed=0).eval()

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

lego, dyck = Lego(n_vars=6), Dyck(length=510)
probed, read = model(lego, d_model=256, n_layers=2), model(dyck, d_model=16, n_layers=1)
twins = [model(lego, d_model=16, n_layers=2) for _ in range(2)]
calls = {
    "probe": lambda n: interp.probe(probed, lego, n_train=n, n_test=20),
    "classify_heads": lambda n: interp.classify_heads(read, dyck, n=n // 32, untrained=1),
    "attention_variation": lambda n: interp.attention_variation(twins, lego, n_sampled=n, n_baseline=2, resamples=2),
}
call = calls["VERB"]
call(256)
before = peak()
call(2048)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "most"), [("probe", 45), ("classify_heads", 50), ("attention_variation", 25)])
def test_peaks_do_not_grow_with_the_number_of_examples(verb, most):
    """`most` is in megabytes; the activations, relations or patterns of 1,792 more examples take more."""
    command = [sys.executable, "-c", PEAK.replace("VERB", verb)]
    grown = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert grown < most


@pytest.fixture
def asked(monkeypatch):
    """Number of examples of each call that reads residual streams, in blocks of 64."""
    sizes, original = [], activations.residuals_at_targets

    def residuals(model, batch, *, first=0):
        sizes.append(len(batch))
        return original(model, batch, first=first)

    monkeypatch.setattr(activations, "residuals_at_targets", residuals)
    monkeypatch.setattr(directions, "residuals_at_targets", residuals)
    for module in (activations, scoring, directions):
        monkeypatch.setattr(module, "EXAMPLES_PER_BLOCK", 64)
    return sizes


def small(task, seed=0, **sizes):
    return Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16, **sizes), seed=seed).eval()


def test_blocks_of_examples_give_the_probes_of_all_at_once(asked, monkeypatch):
    task = Lego(n_vars=3)
    found = interp.probe(small(task), task, n_train=300, n_test=150, verify=True)
    assert max(asked) <= 150
    assert asked.count(64) >= 12
    for module in (activations, scoring, directions):
        monkeypatch.setattr(module, "EXAMPLES_PER_BLOCK", 4096)
    whole = interp.probe(small(task), task, n_train=300, n_test=150, verify=True)
    for name in ("accuracy", "shuffled", "control", "untrained"):
        # an example on a boundary up to rounding
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), atol=1.5 / 150)
    np.testing.assert_allclose(found.causal["follows"], whole.causal["follows"], atol=0.05)


def test_the_error_names_the_example_in_a_later_block(asked):
    task = Lego(n_vars=2)
    model = small(task)
    batch = task.sample(100, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.embed.weight[batch.tokens[-1, 1]] = torch.nan
    first = int((batch.tokens == batch.tokens[-1, 1]).any(1).nonzero()[0])
    rows = batch.select(slice(first, None))
    with pytest.raises(ValueError, match=f"sample {first}"):
        activations.residuals_at_targets(model, rows, first=first)


@pytest.mark.parametrize("task", [Lego(n_vars=3), Dyck(length=12)])
def test_few_queries_at_a_time_give_the_measures_of_all(task, monkeypatch):
    whole = interp.classify_heads(small(task), task, n=20, untrained=2)
    monkeypatch.setattr(measures, "ROW_CELLS", 5 * task.n_ctx)
    monkeypatch.setattr(kinds, "RELATION_CELLS", 3 * task.n_ctx**2)
    monkeypatch.setattr(measures, "CELLS", 2 * task.n_ctx**2)
    parts = interp.classify_heads(small(task, seed=0), task, n=20, untrained=2)
    assert parts.kinds == whole.kinds
    for name in ("score", "p", "value_weighted", "uniformity", "entropy", "moved", "untrained"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-5)


def test_packed_relations_are_the_relations():
    task = Dyck(length=11)
    batch = task.sample(7, generator=torch.Generator().manual_seed(0))
    names = kinds.kinds_of(task, batch)
    packed = kinds.PackedRelations.of(task, batch, names)
    for index, (name, relation) in enumerate(kinds.relations_of(task, batch).items()):
        assert names[index] == name
        assert torch.equal(packed.on(slice(2, 6))[:, index], relation[2:6])


LARGE = """
import resource
from dataclasses import dataclass
from typing import ClassVar
import torch, interp
from hooks import Transformer
from interp.tasks.base import Batch, Task
from interp.tasks.vocab import Vocab

torch.set_num_threads(1)

@dataclass(frozen=True)
class Words(Task):
    vocab: ClassVar = Vocab(tuple(f"w{index}" for index in range(WORDS)))
    targets: ClassVar = ("answer",)
    n_ctx: ClassVar = LENGTH

    def sample(self, n, *, generator, split="train"):
        tokens = torch.randint(WORDS, (n, LENGTH), generator=generator)
        places = torch.full((n, 1), LENGTH - 1)
        return Batch(tokens=tokens, labels=tokens[:, :1], target_positions=places, supervised=torch.tensor([True]))

task = Words()
model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=8), seed=0)
interp.VERB(model, task, n=40)
status = open("/proc/self/status").read()  # the peak that getrusage gives may be that of the caller before exec
print(int(status.split("VmHWM:")[1].split()[0]) / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["logit_attribution", "logit_lens"])
@pytest.mark.parametrize(("words", "length"), [(20_000, 4), (50_000, 4), (50_000, 64)])
def test_a_large_vocabulary_takes_memory_in_proportion(verb, words, length):
    """Within a gigabyte, of which the libraries take a third; a matrix of words x words takes 1.6 or 10 GB."""
    program = LARGE.replace("WORDS", str(words)).replace("LENGTH", str(length)).replace("VERB", verb)
    peak = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert float(peak) < 1000


def test_mean_contrasts_are_those_of_every_answer():
    frequencies = torch.rand(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()
    frequencies[:2] /= frequencies[:2].sum(1, keepdim=True)
    frequencies[2] = 0  # a target that no example has
    for d_vocab_out in (7, 9):
        expected = frequencies @ contrasts_of(torch.arange(7), 7, d_vocab_out)
        torch.testing.assert_close(mean_contrasts(frequencies, d_vocab_out), expected, atol=1e-6, rtol=1e-6)
