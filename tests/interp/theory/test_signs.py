"""Sign counting on models that count and on models that follow the chain, and against a count by hand."""

import json
import math

import numpy as np
import pytest
import torch
from bridges import bridge_of
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
from hooks import FullyConnected, FullyConnectedConfig, Recurrent, RecurrentConfig, Transformer
from interp.core.randomness import derived_generator
from interp.core.statistics import proportion_interval
from interp.known_answers import lego_loop
from interp.known_answers.lego.shortcut import lego_shortcut
from interp.tasks import S3, Dyck, Lego
from interp.tasks.lego.groups import cyclic
from interp.theory import signs as module
from interp.theory.signs import MEASURES, SignCountingResult, broken, flipped, sign_counting

PAPER = Lego(n_vars=4, n_supervised=2)
COMPACT = Lego(n_vars=4, sentence_format="compact", alphabet="abcdefgh")
FORMATS = pytest.mark.parametrize("task", [PAPER, COMPACT], ids=["paper", "compact"])


def random_model(task):
    return Transformer(interp.config_for(task, n_layers=1, d_model=16, n_heads=2))


def sentences_of(task, n=20, seed=0):
    return task.sample(n, generator=derived_generator(seed, "x"), split="test")


def clauses_of(task, tokens):
    """Letter, sign and reference of every clause, as written."""
    words = [word for word in task.vocab.words(tokens) if word not in ("[BOS]", "[EOS]", "=", ";")]
    return [tuple(words[start : start + 3]) for start in range(0, len(words), 3)]


def chain_of(task, tokens):
    """Letters along the chain from the root to its end or break, and their signs."""
    following = {reference: (letter, sign) for letter, sign, reference in clauses_of(task, tokens)}
    letters, signs, at = [], [], task.group.root_token
    while at in following:
        at, sign = following[at]
        letters.append(at)
        signs.append(sign == task.group.elements[1])
    return letters, signs


def band(share, n):
    return 5 * (share * (1 - share) / n) ** 0.5 + 1e-12


def counting(model, task, batch):
    """Answer every variable with the parity of all minus signs."""
    minus = (batch.tokens == task.vocab.ids[task.group.elements[1]]).sum(1) % 2
    return minus[:, None].expand_as(batch.labels).clone()


def following(model, task, batch):
    """Answer with the value along the chain, and with the first value beyond a break."""
    answers = torch.zeros_like(batch.labels)
    for row, (tokens, positions) in enumerate(zip(batch.tokens, batch.target_positions, strict=True)):
        letters, signs = chain_of(task, tokens)
        value = dict(zip(letters, np.cumsum(signs) % 2, strict=True))
        for target, position in enumerate(positions):
            answers[row, target] = int(value.get(task.vocab.names[tokens[position]], 0))
    return answers


def test_shortcut_counts_signs_at_the_last_variable_only():
    result = sign_counting(lego_shortcut(PAPER), PAPER, n=300)
    last = dict(zip(result.measures, result.share[:, -1], strict=True))
    assert (last["right"], last["one flip"], last["two flips"], last["broken"]) == (1, 1, 0, 1)
    assert math.isnan(last["chain"])
    assert math.isnan(last["count"])
    assert (result.of("one flip")[:-1] == 0).all()  # the shortcut gives one answer for the others
    assert (abs(result.of("broken")[1:-1] - 0.5) < [band(0.5, 100), band(0.5, 300)]).all()


def test_loop_follows_the_chain_and_is_at_chance_on_broken_chains():
    n, n_vars = 300, 4
    result = sign_counting(lego_loop(PAPER), PAPER, n=n)
    assert (result.of("right") == 1).all()
    assert (result.of("chain")[:-1] == 1).all()
    assert (result.of("count")[:-1] == 0).all()
    assert np.isnan(result.share[:, -1]).tolist() == [False, False, False, True, True, False]
    assert np.isnan(result.share[:, 0]).tolist() == [False] * 5 + [True]
    assert result.of("broken")[-1] == pytest.approx(0.5, abs=band(0.5, n))
    for target in range(n_vars):
        upstream = target + 1  # signs that determine the value
        one = target / (n_vars - 1)
        two = 2 * upstream * (n_vars - upstream) / (n_vars * (n_vars - 1))
        assert result.of("one flip")[target] == pytest.approx(one, abs=band(one, n / 2))
        assert result.of("two flips")[target] == pytest.approx(two, abs=band(two, n))


@FORMATS
@pytest.mark.parametrize("oracle", [counting, following])
def test_count_and_chain_are_distinguished_at_every_variable(task, oracle, monkeypatch):
    monkeypatch.setattr(module, "_answers", oracle)
    result = sign_counting(random_model(task), task, n=300)
    counts = oracle is counting
    assert (result.of("chain")[:-1] == (0 if counts else 1)).all()
    assert (result.of("count")[:-1] == (1 if counts else 0)).all()
    assert result.of("right")[-1] == 1
    if counts:
        assert (result.of("broken")[1:] == 1).all()
        assert (result.of("one flip") == 1).all()
        assert (result.of("two flips") == 0).all()
    else:
        assert (abs(result.of("broken")[1:] - 0.5) < band(0.5, 100)).all()


def test_cyclic_group_of_order_two_is_accepted(monkeypatch):
    task = Lego(n_vars=3, group=cyclic(2))
    monkeypatch.setattr(module, "_answers", counting)
    assert (sign_counting(random_model(task), task, n=50).of("broken")[1:] == 1).all()


@FORMATS
def test_shares_equal_a_count_by_hand(task, monkeypatch):
    """Parse the sentences given to the model, find flips and breaks in them, and count the answers."""
    shown, real = [], module._answers

    def recorded(model, task, batch):
        shown.append((batch.tokens, real(model, task, batch)))
        return shown[-1][1]

    monkeypatch.setattr(module, "_answers", recorded)
    n = 150
    result = sign_counting(random_model(task), task, n=n, seed=3)
    whole, one, two, cut = shown
    counted = {name: np.zeros((4, 2)) for name in MEASURES}  # hits and answers, for each variable

    def count(name, target, hit):
        counted[name][target] += (hit, 1)

    for row in range(n):
        letters, signs = chain_of(task, whole[0][row])
        answers = whole[1][row]
        flips = []
        for tokens, _ in (one, two):
            others, turned = chain_of(task, tokens[row])
            assert others == letters
            flips.append([index for index in range(4) if signs[index] != turned[index]])
        assert [len(found) for found in flips] == [1, 2]
        intact, _ = chain_of(task, cut[0][row])
        assert intact == letters[: len(intact)]
        assert 1 <= len(intact) <= 2  # the broken clause is neither the first nor the last
        for target in range(4):
            count("right", target, int(answers[target]) == sum(signs[: target + 1]) % 2)
            for name, (_, after), flip in zip(("one flip", "two flips"), (one, two), flips, strict=True):
                changes = bool(after[row][target] != answers[target])
                if flip != [target]:
                    count(name, target, changes)
                by_chain = sum(index <= target for index in flip) % 2 == 1
                by_count = len(flip) % 2 == 1
                if by_chain != by_count:
                    count("chain", target, changes == by_chain)
                    count("count", target, changes == by_count)
            if target >= len(intact):
                count("broken", target, int(cut[1][row][target]) == sum(signs) % 2)
    for name, values in counted.items():
        hits, total = values.T
        assert result.total[result.measures.index(name)].tolist() == total.tolist(), name
        expected = np.where(total > 0, hits / np.maximum(total, 1), np.nan)
        np.testing.assert_allclose(result.of(name), expected, rtol=1e-12, err_msg=name)
    at = result.measures.index("one flip")
    exact = proportion_interval(*counted["one flip"].T.astype(int))
    np.testing.assert_allclose((result.share.low[at], result.share.high[at]), exact, atol=1e-9)
    assert np.isnan(result.share.low[np.isnan(result.share)]).all()


@FORMATS
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_flipped_changes_the_signs_of_the_given_clauses_only(task, data):
    batch = sentences_of(task, 1, seed=data.draw(st.integers(0, 5)))
    chosen = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
    new = flipped(task, batch, torch.tensor([chosen]))
    letters, signs = chain_of(task, batch.tokens[0])
    same, turned = chain_of(task, new.tokens[0])
    assert same == letters
    assert turned == [sign != (index in chosen) for index, sign in enumerate(signs)]
    assert (batch.tokens != new.tokens).sum() == len(chosen)
    assert torch.equal(new.target_positions, batch.target_positions)
    assert new.labels[0].tolist() == (np.cumsum(turned) % 2).tolist()


@FORMATS
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), clause=st.integers(1, 3))
def test_broken_replaces_one_reference_by_an_unused_letter(task, seed, clause):
    batch = sentences_of(task, 5, seed=seed % 7)
    new = broken(task, batch, torch.full((5,), clause), derived_generator(seed, "break"))
    for before, after in zip(batch.tokens, new.tokens, strict=True):
        letters, _ = chain_of(task, before)
        assert chain_of(task, after)[0] == letters[:clause]
        old, changed = clauses_of(task, before), clauses_of(task, after)
        ((was, now),) = [pair for pair in zip(old, changed, strict=True) if pair[0] != pair[1]]
        assert was[:2] == now[:2]
        assert (was[0], was[2]) == (letters[clause], letters[clause - 1])
        assert now[2] in task.alphabet
        assert now[2] not in letters
    assert torch.equal(new.labels, batch.labels)


def test_networks_without_attention_and_bridges_are_accepted():
    task = Lego(n_vars=3, sentence_format="compact", alphabet="abcde")
    sizes = {"d_vocab": task.d_vocab, "d_vocab_out": 2, "n_ctx": task.n_ctx}
    flat = FullyConnected(FullyConnectedConfig(**sizes))
    bridge = bridge_of("native", d_vocab=task.d_vocab)
    for model in (flat, Recurrent(RecurrentConfig(**sizes)), bridge):
        result = sign_counting(model, task, n=600)  # more than one chunk
        assert result.total[0].tolist() == [600] * 3


def test_invalid_arguments_are_refused(as_a_user):
    model = random_model(PAPER)
    with pytest.raises(ValueError, match="n is 0; it must be positive"):
        sign_counting(model, PAPER, n=0)
    for task, text in (
        (Dyck(n_types=2, max_depth=3, length=4), "task is a Dyck; sign counting is for Lego over signs"),
        (Lego(n_vars=3, group=S3), r"group='S3'; only over signs \(Z2\) is a value the parity of a count"),
        (Lego(n_vars=2), "n_vars is 2; a chain is broken between its first and last variable, so it needs 3 or more"),
        (Lego(n_vars=3, alphabet="abc"), "n_vars is 3, all letters of the alphabet; .* Give a longer alphabet"),
    ):
        with pytest.raises(ValueError, match=text):
            sign_counting(model, task)
    with pytest.raises(ValueError, match=r"model is a Linear; accepted are hooks\.Transformer"):
        sign_counting(torch.nn.Linear(2, 2), PAPER)
    with pytest.raises(ValueError, match="measure is 'flips'; choose one of right, one flip, two flips, chain"):
        sign_counting(model, PAPER, n=5).of("flips")


def test_result_prints_tabulates_plots_and_saves(tmp_path):
    result = sign_counting(random_model(PAPER), PAPER, n=60)
    lines = str(result).splitlines()
    assert lines[0].split() == ["right", "one", "flip", "two", "flips", "chain", "count", "broken"]
    assert lines[1].split()[0] == "#0"
    assert lines[1].split()[-1] == "-"
    assert lines[4].split()[4:6] == ["-", "-"]
    assert lines[4].split()[-1] == f"{result.of('broken')[-1]:.3f}"
    assert lines[5].startswith("60 held-out sentences (95 % within 0.")
    assert lines[-1] == "broken: " + MEASURES["broken"]
    table = result.to_dataframe()
    assert list(table.columns) == ["measure", "target", "share", "low", "high", "total"]
    row = table[(table["measure"] == "broken") & (table["target"] == "#3")]
    assert (row["share"].item(), row["total"].item()) == (result.of("broken")[-1], 60)
    spec = json.dumps(result.plot().to_dict())
    assert '"datum": 0.5' in spec
    assert "parity, broken chain" in spec
    assert "<svg" in result._repr_html_()
    result.save(tmp_path / "result.json")
    again = SignCountingResult.load(tmp_path / "result.json")
    assert np.array_equal(again.share, result.share, equal_nan=True)
    assert np.array_equal(again.total, result.total)
    assert str(again) == str(result)


def test_results_depend_on_the_seed_alone():
    model = random_model(PAPER)
    one, same, other = (sign_counting(model, PAPER, n=100, seed=seed).share for seed in (0, 0, 1))
    assert np.array_equal(one, same, equal_nan=True)
    assert not np.array_equal(one, other, equal_nan=True)
    assert model.training  # as it was
