"""Cost of hard-coded attention: counts agree with arithmetic and with real passes, memory scales as expected."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import bench_pathways
from case_studies.frame.evidence import SIZES, Evidence, Size
from case_studies.frame.measurement import Measurement
from case_studies.lego import cost, timing
from case_studies.lego.cost import CLAIMS, EFFORT
from case_studies.lego.counting import (
    CountedLayers,
    count_operations,
    count_parameters,
    head_multiplications,
    multiplications,
    parameters_from_sizes,
    unseen_additions,
)
from case_studies.lego.timing import (
    CLS,
    LONG,
    MODELS,
    OURS,
    SEP,
    SHORT,
    Candidate,
    TimeAndMemory,
    bytes_stored_for_backward,
    heads_at_lengths,
    heads_of_each_kind,
    one_head,
    random_tokens,
    take_turns,
    whole_models,
)
from hooks import Encoder, EncoderConfig, Pathways, presets
from hooks.model.hardcoded.head_patterns import ORDER

SMALL = {"d_model": 16, "n_heads": 8, "n_layers": 2, "n_ctx": 40, "d_vocab": 30}
NAMES = list(OURS)
PARTS: tuple[CountedLayers, ...] = get_args(CountedLayers)


def small(name: str, **sizes) -> EncoderConfig:
    markers = {} if name == "BERT" else {"cls_token": CLS, "sep_token": SEP}
    return OURS[name](**markers, **{**SMALL, **sizes})


def some_tokens(batch=2, length=24):
    return random_tokens(batch, length, seed=0) % 30


def evidence(size: Size = "quick"):
    return Evidence(size=size, seed=0, groups={}, folder=Path())


def held_by(function: Any) -> Any:
    """The first variable in a function's closure."""
    return function.__closure__[0].cell_contents


def claim(name):
    return next(claim for claim in CLAIMS if claim.id == f"hardcoded.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_counts_equal_arithmetic_and_real_passes(name):
    cfg, tokens = small(name), some_tokens()
    layers, head = (count_operations(cfg, tokens, counted_layers=part) for part in PARTS)
    assert layers.forward == 2 * tokens.numel() * cfg.n_layers * sum(multiplications(cfg, 24).values())
    assert head.forward == 2 * tokens.numel() * head_multiplications(cfg)
    for part, found in zip(PARTS, (layers, head), strict=True):
        assert found.backward == 2 * found.forward
        assert count_operations(cfg, tokens, counted_layers=part, device="cpu") == found
    for config, expected in ((cfg, layers.forward + head.forward), (small(name, head="none"), layers.forward)):
        counter = FlopCounterMode(display=False)
        with counter:
            Encoder(config).eval()(tokens)
        assert counter.get_total_flops() == expected


@settings(max_examples=10, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 2), min_size=5, max_size=5).filter(any),
    kernel=st.sampled_from([1, 3, 7]),
    length=st.integers(2, 12),
)
def test_counts_equal_arithmetic_for_any_mixture(sizes, kernel, length):
    chosen = dict(zip(ORDER, (4 * size for size in sizes), strict=True))
    pathways = Pathways(**chosen, kernel_width=kernel, cls_token=CLS, sep_token=SEP)
    cfg = presets.bert_encoder(
        head_patterns=pathways, d_model=12, d_head=4, n_heads=sum(sizes), n_layers=1, n_ctx=12, d_vocab=30
    )
    tokens = some_tokens(3, length)
    found = count_operations(cfg, tokens)
    assert found.forward == 2 * tokens.numel() * sum(multiplications(cfg, length).values())
    assert found.backward == 2 * found.forward
    assert count_parameters(cfg) == parameters_from_sizes(cfg)
    assert unseen_additions(cfg) == chosen["association"]


def test_torch_overcounts_the_backward_pass_of_a_depthwise_convolution():
    cfg, tokens = small("Hardcode"), some_tokens()
    assert cfg.pathways is not None
    kernels = cfg.pathways.convolution
    without = replace(cfg.pathways, association=cfg.pathways.association + kernels, convolution=0)
    found, other = (count_operations(one, tokens) for one in (cfg, small("Hardcode", head_patterns=without)))
    once = 2 * 21 * kernels * tokens.numel() * cfg.n_layers
    assert found.forward - other.forward == once
    assert found.backward - other.backward == 2 * once
    assert found.backward_by_torch - other.backward_by_torch == once + kernels * once
    assert other.backward_by_torch == other.backward


@pytest.mark.parametrize("name", NAMES)
def test_parameters_equal_those_of_real_models(name):
    cfg = small(name)
    assert count_parameters(cfg) == parameters_from_sizes(cfg) == sum(p.numel() for p in Encoder(cfg).parameters())


def test_unknown_parts_and_long_inputs_are_refused():
    with pytest.raises(ValueError, match=r"counted_layers is 'tail'; choose one of layers, head\."):
        count_operations(small("BERT"), some_tokens(), counted_layers="tail")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"tokens has 41 positions; n_ctx of this model is 40\."):
        count_operations(small("BERT"), some_tokens(1, 41))


def test_base_sizes_at_the_papers_batch():
    measurement = claim("flops").measurement(evidence())
    assert measurement.value == measurement.low == measurement.high == measurement.numbers["Hybrid over BERT"]
    assert measurement.exact
    # (12 d^2 + 2 T d), (10 d^2 + 21 * 576), (11 d^2 + T d + 21 * 192) with d = 768, T = 512
    macs = {"BERT": 12 * 768**2 + 2 * 512 * 768, "Hardcode": 10 * 768**2 + 21 * 576}
    macs["Hybrid"] = 11 * 768**2 + 512 * 768 + 21 * 192
    for name, per_token in macs.items():
        assert measurement.numbers[f"{name}, TFLOP"] == pytest.approx(2 * 64 * 512 * 12 * per_token / 1e12, rel=1e-12)
        assert measurement.numbers[f"{name}, TFLOP from the sizes"] == measurement.numbers[f"{name}, TFLOP"]
    assert measurement.value == pytest.approx(macs["Hybrid"] / macs["BERT"])
    assert measurement.numbers["Hybrid over BERT, masked-LM head too"] > measurement.value
    (_, counts), (_, parts) = measurement.tables
    for row in counts[1:]:
        assert row[2] == row[3]
        assert row[6] == row[7]
        assert float(row[4]) == pytest.approx(3 * float(row[2]), abs=0.002)
        assert float(row[8]) == pytest.approx(3 * float(row[6]), abs=0.002)
    assert [row[-1] for row in parts[1:]] == ["0", "64", "64"]
    assert len(measurement.charts) == 1


def test_parameters_of_base_sizes():
    measurement = claim("parameters").measurement(evidence())
    assert measurement.numbers["BERT, millions"] == pytest.approx(109.514298)
    assert measurement.value == measurement.numbers["Hybrid over BERT"] > measurement.numbers["Hardcode over BERT"]
    assert claim("parameters").verdict(measurement) == "reproduced"
    assert all(row[2] == row[3] for row in measurement.tables[0][1][1:])


def test_stored_bytes_count_every_storage_once_and_no_parameter():
    x, weight = torch.ones(10, 4, requires_grad=True), torch.ones(4, 3, requires_grad=True)

    def run():
        ((x @ weight).exp() + (x[:5] @ weight).sum()).sum().backward()  # stores x, a view of it, and the output of exp

    assert bytes_stored_for_backward(run, parameters=[weight]) == 4 * (10 * 4 + 10 * 3)
    assert bytes_stored_for_backward(run) == 4 * (10 * 4 + 10 * 3 + 4 * 3)
    assert x.grad is not None


def kept(name, length, batch=1, **more):
    candidate = one_head(name, batch=batch, length=length, seed=0, **more)
    return bytes_stored_for_backward(candidate, parameters=candidate.parameters)


@pytest.mark.parametrize("name", [*ORDER])
def test_stored_bytes_of_a_head_are_linear_in_the_length(name):
    assert kept(name, 512) / kept(name, 256) == pytest.approx(2, rel=0.02)
    assert kept(name, 256, batch=2) / kept(name, 256) == pytest.approx(2, rel=0.02)


def test_an_unfused_learned_head_stores_its_pattern():
    short, long = (kept("learned", length, written_out=True) for length in (256, 512))
    assert long - 2 * short == pytest.approx(4 * 512**2 / 2, rel=0.02)  # the remainder is quadratic


def test_a_timed_head_has_the_requested_pathway():
    timed = one_head("association", batch=2, length=16, seed=0)
    attention = held_by(timed.forward)
    assert attention.pathways.association == attention.pathways.sizes["association"] == timing.HEAD
    assert (attention.n_heads, attention.training, timed.name) == (1, True, "association")
    assert len(timed.weights) == len(timed.parameters) + 1  # the input has a gradient too
    assert timed.forward().shape == (2, 16, timing.BASE)
    fused, out = (one_head("learned", batch=2, length=80, seed=0, written_out=written) for written in (False, True))
    assert (fused.name, out.name) == ("learned", "learned, written out")
    torch.testing.assert_close(fused.forward(), out.forward(), atol=1e-5, rtol=1e-4)


def test_fixed_heads_compute_token_maps_in_every_call_and_a_learned_head_never(monkeypatch):
    calls = []
    make = timing.token_maps
    monkeypatch.setattr(timing, "token_maps", lambda *given, **more: calls.append(1) or make(*given, **more))
    timed = one_head("cls", batch=1, length=8, seed=0)
    for _ in range(3):
        timed()
    assert len(calls) == 3
    calls.clear()
    learned = one_head("learned", batch=1, length=8, seed=0)
    calls.clear()
    learned()
    assert not calls


def test_candidates_take_turns():
    order = []

    def candidate(name, length):
        return Candidate(name=name, length=length, forward=lambda: order.append((name, length)), weights=())

    found = take_turns([candidate("a", 1), candidate("a", 2), candidate("b", 1)], rounds=2)
    assert order == [("a", 1), ("a", 2), ("b", 1)] * 3
    assert list(found) == [("a", 1), ("a", 2), ("b", 1)]
    assert all(len(one.seconds) == 2 and one.stored_bytes == 0 for one in found.values())


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match=r"rounds is 0; give at least 1"):
        take_turns([], rounds=0)
    twice = one_head("cls", batch=1, length=4, seed=0)
    with pytest.raises(ValueError, match="candidates of the same name and length"):
        take_turns([twice, twice], rounds=1)
    with pytest.raises(ValueError, match="pathway is 'dense'; choose one of learned, association"):
        one_head("dense", batch=1, length=4, seed=0)
    with pytest.raises(ValueError, match=r"no model is called 'GPT'; choose among BERT, Hardcode"):
        whole_models(["BERT", "GPT"], lengths=(4,), tokens=8, seed=0)
    with pytest.raises(ValueError, match="tokens is 10, not a multiple of the length 4"):
        whole_models(["BERT"], lengths=(2, 4), tokens=10, seed=0)


def test_ratios_are_paired_by_round():
    ours = TimeAndMemory(name="a", length=1, seconds=(1.0, 20.0, 6.0), stored_bytes=0)
    theirs = TimeAndMemory(name="b", length=1, seconds=(2.0, 10.0, 2.0), stored_bytes=0)
    assert ours.over(theirs) == pytest.approx([0.5, 2, 3])
    assert ours.quartiles == pytest.approx((6, 3.5, 13))


def test_random_tokens_are_between_markers():
    tokens = random_tokens(3, 40, seed=1)
    assert (tokens[:, 0] == CLS).all()
    assert (tokens[:, -1] == SEP).all()
    assert tokens[:, 1:-1].min() > SEP
    assert tokens.max() < timing.VOCAB
    assert not torch.equal(tokens, random_tokens(3, 40, seed=2))


TINY = {"d_model": 16, "n_heads": 8, "n_layers": 1}


def test_models_that_are_compared_have_the_same_sizes():
    state = torch.get_rng_state()
    candidates = whole_models(MODELS, lengths=(8, 16), tokens=32, seed=0, sizes=TINY)
    assert torch.equal(state, torch.get_rng_state())
    assert [(one.name, one.length) for one in candidates] == [(name, n) for name in MODELS for n in (8, 16)]
    assert all(one.forward().shape == (32 // one.length, one.length, timing.VOCAB) for one in candidates)
    parameters = {one.name: sum(weight.numel() for weight in one.weights) for one in candidates}
    assert len({parameters[name] for name in ("BERT", *timing.HUGGINGFACE)}) == 1
    assert parameters["BERT"] > parameters["Hybrid"] > parameters["Hardcode"]
    run: dict[str, Any] = {one.name: cast(Any, one.forward).func for one in candidates}
    for name, chosen in timing.HUGGINGFACE.items():
        model = held_by(run[name])
        assert model.config._attn_implementation == chosen
        assert model.training
        assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {0.0}
    assert all(run[name].training for name in OURS)


def test_stored_bytes_of_models_depend_on_the_length_only_through_eager_scores():
    lengths = (16, 64, 128)
    candidates = whole_models(MODELS, lengths=lengths, tokens=128, seed=0, sizes=TINY)
    held = {(one.name, one.length): bytes_stored_for_backward(one, parameters=one.parameters) for one in candidates}
    for name in MODELS:
        growth = held[name, 128] - held[name, 64]
        patterns = 4 * 8 * 128 * (128 - 64)  # floats of 8 heads: 128 tokens with 64 more keys each
        assert growth == pytest.approx(patterns if name == "Hugging Face, eager" else 0, abs=0.02 * held[name, 64]), (
            name
        )


@pytest.fixture
def tiny(monkeypatch):
    """Short sequences, small models, few rounds."""
    for module in (cost, timing):
        monkeypatch.setattr(module, "SHORT", 16)
    monkeypatch.setattr(timing, "HEAD_BATCH", 2)
    effort = replace(EFFORT["standard"], model_rounds=7, model_lengths=(8, 16), tokens=32)
    monkeypatch.setitem(EFFORT, "standard", effort)
    monkeypatch.setattr(cost, "whole_models", partial(whole_models, sizes=TINY))


def test_measures_return_the_largest_ratio_with_interval_tables_and_charts(tiny):
    said = claim("time").measurement(evidence("standard"))
    assert 0 < said.low <= said.value <= said.high < math.inf
    assert (said.n, said.unit) == (7, "rounds")
    assert said.numbers["threads"] == torch.get_num_threads()
    assert claim("time").verdict(said) in ("reproduced", "not reproduced", "inconclusive")
    assert Measurement.from_dict(said.to_dict()) == said
    assert said.value == max(said.numbers[f"{name} over Hugging Face, sdpa"] for name in ("Hardcode", "Hybrid"))
    assert len(said.tables[1][1]) == 1 + 2 * len(MODELS)
    assert len(said.charts) == 2
    for chart in said.charts:
        scales = [layer["encoding"][axis]["scale"] for layer in chart["layer"] for axis in ("x", "y")]
        assert {scale["type"] for scale in scales} == {"log"}


def test_hard_coded_maps_are_linear_in_the_length_and_learned_ones_are_not(monkeypatch):
    monkeypatch.setattr(cost, "SHORT", 64)
    monkeypatch.setattr(cost, "LONG", 512)
    said = claim("linear").measurement(evidence("standard"))
    assert said.numbers["association, operations"] == said.numbers["cls, operations"] == 8
    assert 7.5 < said.numbers["association, stored bytes"] <= 8
    assert said.value == max(ratio for name, ratio in said.numbers.items() if name.startswith(("association", "cls")))
    assert claim("linear").verdict(said) == "reproduced"
    # Per key: W_Q, W_K, W_V and W_O, and twice the length for the pattern and its use
    d, width = timing.BASE, timing.HEAD
    learned = [length * (4 * d * width + 2 * length * width) for length in (64, 512)]
    assert said.numbers["learned, written out, operations"] == pytest.approx(learned[1] / learned[0])


@pytest.mark.parametrize(
    ("n", "confidence", "rank"), [(5, 0.95, 0), (6, 0.95, 1), (7, 0.975, 1), (8, 0.9875, 1), (21, 0.95, 6)]
)
def test_interval_of_a_median_is_between_order_statistics(n, confidence, rank):
    """The published table for n = 21 gives the 6th and 16th value; below six there is no 95 % interval."""
    shuffled = np.random.default_rng(0).permutation(np.arange(1.0, n + 1))
    ends = (rank, n + 1 - rank) if rank else (-math.inf, math.inf)
    assert cost.median_interval(shuffled, confidence=confidence).floats() == ((n + 1) / 2, *ends)


def test_interval_of_a_median_covers_it_for_a_skewed_distribution():
    draws = np.random.default_rng(1).exponential(size=(2000, 9))
    ends = np.array([cost.median_interval(row).floats()[1:] for row in draws])
    covered = int(((ends[:, 0] < math.log(2)) & (math.log(2) < ends[:, 1])).sum())
    assert stats.binomtest(covered, 2000, 1 - 2 * stats.binom.cdf(1, 9, 0.5)).pvalue > 1e-6
    assert covered / 2000 > 0.95


def test_largest_median_has_the_largest_ends_of_joint_intervals():
    one, other = np.arange(10.0, 31), np.arange(0.0, 42, 2)
    value, low, high = cost.largest_median([one, other]).floats()
    assert value == 20
    assert low == cost.median_interval(one, confidence=0.975).low == 14
    assert high == cost.median_interval(other, confidence=0.975).high == 32


@pytest.mark.parametrize("size", SIZES)
def test_every_size_has_enough_rounds_for_its_intervals(size):
    rounds = np.arange(float(EFFORT[size].model_rounds))
    assert math.isfinite(cost.median_interval(rounds, confidence=1 - 0.05 / 2).low)


@pytest.mark.parametrize("size", SIZES)
def test_every_size_measures_the_lengths_of_the_rules(size):
    effort = EFFORT[size]
    assert (SHORT, LONG) == (512, 4096)
    assert SHORT in effort.model_lengths
    assert {"Hardcode", "Hybrid", cost.PUBLISHED} <= set(effort.models)
    assert not any(effort.tokens % length for length in effort.model_lengths)
    assert size == "quick" or (effort.model_rounds >= 5 and effort.models == MODELS)


@pytest.mark.parametrize(
    ("name", "value", "low", "high", "verdict"),
    [
        ("flops", 0.99, 0.99, 0.99, "reproduced"), ("flops", 1.0, 1.0, 1.0, "not reproduced"),
        ("parameters", 0.99, 0.99, 0.99, "reproduced"), ("parameters", 1.01, 1.01, 1.01, "not reproduced"),
        ("linear", 8.0, 8.0, 8.0, "reproduced"), ("linear", 8.01, 8.01, 8.01, "not reproduced"),
        ("time", 0.9, 0.8, 0.99, "reproduced"), ("time", 1.1, 1.01, 1.2, "not reproduced"),
        ("time", 0.9, 0.8, 1.0, "inconclusive"), ("time", 1.1, 1.0, 1.2, "inconclusive"),
    ],
)  # fmt: skip
def test_judges_on_both_sides_of_their_bars(name, value, low, high, verdict):
    found = Measurement(value=value, low=low, high=high, n=3, unit="rounds", exact=low == high)
    assert claim(name).verdict(found) == verdict


def test_claims_are_stated_with_source_and_rule():
    assert [claim.id for claim in CLAIMS] == [f"hardcoded.{name}" for name in ("flops", "parameters", "linear", "time")]
    for stated in CLAIMS:
        counts = stated.id in ("hardcoded.flops", "hardcoded.parameters", "hardcoded.linear")
        of_paper = stated.id == "hardcoded.flops"  # the paper counts operations and does not time
        assert stated.source == ("LEGO, Section 5 and Figure 8" if of_paper else "ours, after LEGO, Section 5")
        assert stated.repeatable == counts
        assert stated.statement.endswith(".")
        assert "reproduced if" in stated.rule_text
        assert stated.by_construction == counts
        assert stated.quantity
        assert (stated.needs, set(stated.sizes)) == ((), set(SIZES))


def test_the_benchmark_has_the_bars_of_the_claims(monkeypatch):
    def instant(candidates, *, rounds):
        return {(one.name, one.length): SimpleNamespace(seconds=(1.0,) * rounds) for one in candidates}

    made = {}
    for builder in (heads_of_each_kind, heads_at_lengths, whole_models):
        names = {
            "heads_of_each_kind": [(name, 512) for name in (*ORDER, "token maps")],
            "heads_at_lengths": [
                (n, t) for t in (512, 4096) for n in ("association", "cls", "learned", "learned, written out")
            ],
            "whole_models": [(name, 512) for name in MODELS],
        }[builder.__name__]
        made[builder.__name__] = [SimpleNamespace(name=name, length=length) for name, length in names]
        monkeypatch.setattr(bench_pathways, builder.__name__, lambda *_, key=builder.__name__, **__: made[key])
    monkeypatch.setattr(bench_pathways, "take_turns", instant)
    found = list(bench_pathways.comparisons())
    assert [one.bar for one in found if one.bar is not None] == [0.5] * 4 + [9] * 2 + [1.0] * 4
    lines = [str(one) for one in found]
    assert sum("no bar" in line for line in lines) == 3
    assert all("ratio 1.000" in line for line in lines)
