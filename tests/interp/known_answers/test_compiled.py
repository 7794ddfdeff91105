"""Compiled programs: packs, their task, named values, the truth about heads, and assembled models of tracr."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from packs import AT, BOS, LETTERS, PAD, POS, RESIDUAL, TOKENS, answer, weights, write_pack

import interp
from interp.heads.kinds import with_kinds
from interp.known_answers import from_tracr, read_compiled
from interp.known_answers.compiled.answers import Removal, other_example
from interp.known_answers.compiled.network import network, written_at
from interp.known_answers.compiled.task import Compiled


@pytest.fixture(scope="module", params=[False, True], ids=["categorical", "numerical"])
def known(request, tmp_path_factory):
    return read_compiled(write_pack(tmp_path_factory.mktemp("pack"), numerical=request.param))


@pytest.fixture
def selectors():
    """Kinds for the two selectors."""
    names = ("selector_1", "selector_2")
    with with_kinds({name: lambda task, batch, name=name: task.relations(batch).get(name) for name in names}):
        yield


def everything(task):
    return task.examples(torch.arange(len(task.program.examples)))


def clean(known):
    batch = everything(known.task)
    with torch.no_grad():
        return batch, *known.model.run_with_cache(batch.tokens, **batch.model_inputs())


def test_the_model_gives_every_answer_of_the_program(known):
    batch, logits, _ = clean(known)
    program, n_scored = known.task.program, 0
    for row in range(len(batch)):
        word = [TOKENS[token] for token in batch.tokens[row] if TOKENS[token] in LETTERS]
        for place in range(len(word)):
            expected = answer(word, place, program.numerical)
            if program.numerical:
                assert logits[row, place + 1, 0].item() == pytest.approx(expected, abs=1e-4)
            elif expected >= 0:
                assert logits[row, place + 1].argmax() == expected
            n_scored += 1
    assert n_scored > 1000
    result = interp.evaluate(known.model, known.task, n=300)
    assert (result.accuracy == 1).all()


def test_the_task_is_an_ordinary_one(known):
    task = known.task
    interp.check_task(task)
    again = Compiled.from_description(json.loads(json.dumps(task.describe())))
    assert again.description == task.description
    assert torch.equal(everything(again).labels, everything(task).labels)
    pools = [set(pool.tolist()) for pool in task.pools.values()]
    assert [len(pool) for pool in pools] == [200, 50, 150]
    assert len(set.union(*pools)) == 400
    batch = task.sample(40, generator=torch.Generator().manual_seed(0), split="test")
    assert set(batch.example.tolist()) <= pools[2]
    assert torch.equal(batch.attention_mask, batch.tokens != TOKENS.index(PAD))
    assert task.outcomes == (("answer",) if task.program.numerical else ("answer", f"answer but {rarest_not(task)}"))
    trained = interp.train(network(task.program), task, interp.TrainSettings(steps=2, warmup_steps=0, n_eval=8), seed=0)
    assert np.isfinite(trained.history[-1]["loss"])


def rarest_not(task):
    """The most frequent answer."""
    targets = task.program.targets[task.program.targets >= 0]
    return LETTERS[np.bincount(targets.astype(int)).argmax()]


def test_the_outcome_without_the_most_frequent_answer(tmp_path):
    task = read_compiled(write_pack(tmp_path)).task
    batch = everything(task)
    always = torch.full((*batch.labels.shape, 3), 0.0)
    always[..., LETTERS.index(rarest_not(task))] = 1
    score = task.score(always, batch)
    right, total = score.right.sum(0), score.total.sum(0)
    assert right[0] == (task.program.targets == LETTERS.index(rarest_not(task))).sum() > 0
    assert (right[1], total[1]) == (0, total[0] - right[0])
    assert total[0] == (task.program.targets >= 0).sum()
    assert score.loss[:, 0].sum() > score.loss[:, 1].sum() > 0


def test_heads_attend_to_the_keys_of_their_relation(known):
    batch, _, cache = clean(known)
    related = batch.select(slice(0, 200))
    relations = known.task.relations(related)
    assert list(relations) == ["selector_1", "selector_2"]
    assert known.task.relations(batch) == {}  # those of the examples for training are not known
    for keys, (layer, head) in zip(relations.values(), [(0, 1), (1, 0)], strict=True):
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"][:200, head]
        rows = keys.any(-1) & related.attention_mask
        rows[:, 0] = False
        expected = keys / keys.sum(-1, keepdim=True)
        torch.testing.assert_close(pattern[rows], expected[rows].float(), atol=1e-6, rtol=0)
        assert rows.sum() > 300
    assert relations["selector_2"][:, 1:, 0].all()  # a head that counts attends to the first token too
    assert not relations["selector_1"][:, :, 0].any()


def test_named_values_are_those_of_the_program(known):
    batch = everything(known.task)
    labels = known.task.probe_labels(batch)
    assert {"label", "tokens", "indices", "previous", "same_attn_output"} == set(labels)
    positions = batch.target_positions.clamp_min(1)
    words = batch.tokens.gather(1, positions - 1)
    after_letter = batch.present & (words < 3)
    assert (labels["previous"][after_letter] == words[after_letter]).all()
    assert labels["previous"][batch.present & (words >= 3)].unique().numel() <= 1
    index = batch.target_positions[batch.present]
    assert (labels["indices"][batch.present] - index).unique().numel() == 1
    first = written_at(known.task.program)
    assert first == {"indices": 0, "one": 0, "previous": 1, "same_attn_output": 2, "tokens": 0}


def test_the_truth_about_heads(known):
    moves, counts = known.heads[0, 1], known.heads[1, 0]
    used, unused = (counts, moves) if known.task.program.numerical else (moves, counts)
    assert (used.truth, used.needed) == ("faithful", {"zero": True, "mean": True, "resample": True})
    assert (unused.truth, set(unused.needed.values())) == ("misleading", {False})
    assert (moves.looks, counts.looks) == ("selector_1", "selector_2")
    for head in ((0, 0), (1, 1)):
        assert (known.heads[head].truth, known.heads[head].looks) == ("idle", None)


def test_sets_of_heads_are_removed_together(tmp_path):
    """A copy of a head in the place of an idle one, each with half of what is written: redundant; and it is found."""
    arrays_with_copy = weights(False)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        arrays_with_copy[name][0, 0] = arrays_with_copy[name][0, 1]
    path = write_pack(tmp_path, change=lambda values: values["heads"].insert(0, {**values["heads"][0], "head": 0}))
    values = json.loads(path.with_suffix(".json").read_text())
    values["relations_shape"][0] = 3
    path.with_suffix(".json").write_text(json.dumps(values))
    arrays = dict(np.load(path.with_suffix(".npz")))
    keys = np.unpackbits(arrays["relations"], count=2 * 200 * POS * POS).reshape(2, 200, POS, POS)
    arrays |= {**arrays_with_copy, "relations": np.packbits(np.concatenate([keys[:1], keys]))}
    np.savez(path.with_suffix(".npz"), **arrays)
    known = read_compiled(path)
    for head, partner in (((0, 0), (0, 1)), ((0, 1), (0, 0))):
        assert (known.heads[head].truth, known.heads[head].partners) == ("redundant", (partner,))
    removal = Removal(known.model, known.task)
    assert removal.minimal([(0, 0), (0, 1), (1, 0), (1, 1)]) == [frozenset({(0, 0), (0, 1)})]
    assert (removal.clean == 1).all()


def test_chance_is_that_of_the_best_constant_answer(known):
    """Counted by hand: the most frequent answer, or the most frequent at each position."""
    task = known.task
    batch = task.examples(task.pools["test"])
    answers = [(target, label) for row, present in zip(batch.labels.tolist(), batch.present.tolist(), strict=True)
               for target, (label, is_present) in enumerate(zip(row, present, strict=True)) if is_present]  # fmt: skip
    labels = [label for _, label in answers]
    by_target = [[label for target, label in answers if target == index] for index in range(len(task.targets))]
    most_frequent = max(map(labels.count, labels)) / len(labels)
    at_each = sum(max(map(of_target.count, of_target)) for of_target in by_target) / len(labels)
    chance = Removal(known.model, task).chance
    assert chance[0].item() == pytest.approx(max(most_frequent, at_each, task.chance))
    assert chance[0] > task.chance


def test_an_outcome_that_a_constant_answer_always_gives_costs_nothing(known):
    removal = Removal(known.model, known.task)
    assert removal.costs([(0, 1)]) != removal.costs([(1, 0)])  # one of them is used
    removal.chance = torch.ones_like(removal.chance)
    assert not removal.costs([(0, 1)])
    assert not removal.costs([(1, 0)])


def test_the_audit_agrees_and_selectors_are_found(known, selectors):
    labels = interp.classify_heads(known.model, known.task, n=128, kinds=["selector_1", "selector_2"]).label
    assert [list(row) for row in labels] == [["uniform", "selector_1"], ["selector_2", "uniform"]]
    for head in interp.audit(known.model, known.task, n=256).heads:
        assert head.verdict == known.heads[head.place].truth, head


def test_a_program_without_training_examples_is_audited(tmp_path):
    known = read_compiled(write_pack(tmp_path, n=200, some=200))
    assert len(known.task.pools["train"]) == 0
    assert len(interp.audit(known.model, known.task, n=64).heads) > 0
    words = (
        r"no examples for split 'train': of its 200 examples, those whose selected keys are known \(200\) are for "
        r"testing, one in 4 of them for validation, and the others for training. Give it more examples."
    )
    for refused in (interp.check_task, lambda task: interp.train(known.model, task)):
        with pytest.raises(ValueError, match=words):
            refused(known.task)


def test_a_program_with_too_few_examples_to_validate_is_refused(tmp_path):
    known = read_compiled(write_pack(tmp_path, n=200, some=3))
    with pytest.raises(ValueError, match="no examples for split 'validation': of its 200 examples"):
        interp.audit(known.model, known.task)


def replaced(name, value):
    return lambda values: values.update({name: value})


@pytest.mark.parametrize(
    ("change", "arrays", "words"),
    [
        (replaced("d_model", 10), {}, r"letters.npz is not a pack .*W_E has shape \(5, 16\)"),
        (
            replaced("n_layers", 3),
            {},
            r"W_Q has shape \(2, 2, 16, 7\) and type float32; by the sizes it must be \(3, 2,",
        ),
        (replaced("n_layers", 10**9), {}, r"W_Q has shape .* by the sizes it must be \(1000000000, 2,"),
        (
            lambda values: values.update(n_heads=60_000, d_head=60_000),
            {},
            r"W_Q has shape .* by the sizes it must be \(2, 60000, 16, 60000\)",
        ),
        (replaced("attn_scale", 2.0), {}, "attn_scale 2.0; compiled programs have None, 'relu' and 1"),
        (replaced("output", "both"), {}, "output is 'both'; choose one of categorical, numerical"),
        (replaced("tokens", ["a", "a"]), {}, "tokens is .*; it must be a list of different names"),
        (replaced("pad", "zzz"), {}, "pad is 'zzz', which is none of the tokens"),
        (replaced("causal", 1), {}, "causal is a int; it must be a bool"),
        (replaced("relations_shape", [1, 2, 6, 6]), {}, r"relations_shape is \[1, 2, 6, 6\]; it must be \(head, some"),
        (lambda values: values["heads"][0].update(layer=2), {}, "layer is 2; it must be at least 0 and at most 1"),
        (lambda values: values["heads"][1].update(layer=0, head=1), {}, "names a head twice"),
        (lambda values: values.pop("residual"), {}, "letters.json is not a pack .*'residual' is missing"),
        (None, {"W_U": np.full((16, 3), np.nan, np.float32)}, "W_U has numbers that are not finite"),
        (None, {"tokens": np.full((400, 6), 9, np.int16)}, "tokens has ids from 9 to 9; there are 5 tokens"),
        (None, {"targets": np.full((400, 6), 3, np.int16)}, "targets has classes from 3 to 3; there are 3 values"),
        (None, {"targets": np.full((400, 6), -1, np.int16)}, "targets has no answer"),
        (None, {"targets": np.zeros((400, 6), np.int16)}, "targets has an answer at a 'compiler_pad' token"),
        (None, {"targets": np.zeros((400, 6), object)}, "targets holds objects"),
        (None, {"W_U": np.zeros((16, 3), ">f4")}, r"letters.npz is not a pack .*W_U has the type '>f4'; only numbers"),
        (None, {"tokens": np.zeros((400, 6), ">i2")}, "tokens has the type '>i2'; only numbers of at most 8 bytes"),
        (None, {"W_U": np.zeros((16, 3), np.longdouble)}, "W_U has the type '<f16'; only numbers of at most 8 bytes"),
        (None, {"W_U": np.zeros((16, 3), complex)}, "W_U has the type '<c16'; only numbers of at most 8 bytes"),
    ],
)
def test_a_pack_that_does_not_fit_is_refused(tmp_path, change, arrays, words):
    with pytest.raises(ValueError, match=words):
        read_compiled(write_pack(tmp_path, change=change, **arrays))


def test_a_missing_or_damaged_file(tmp_path):
    path = write_pack(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no .*nothing.json; a pack of a compiled program is"):
        read_compiled(tmp_path / "nothing")
    for content in (b"", b"PK" + bytes(40), path.with_suffix(".npz").read_bytes()[:2000]):
        path.with_suffix(".npz").write_bytes(content)
        with pytest.raises(
            ValueError, match=r"letters.npz is not a pack of a compiled program: the archive is damaged"
        ):
            read_compiled(path.with_suffix(".npz"))


def assembled(*, norm=False, numerical=False, bias=0.0, residual=RESIDUAL, causal=False):
    """What tracr would have in memory for the same weights: its names, its axes, and its scaled scores."""
    arrays, params = weights(numerical), {}
    params["token_embed"], params["pos_embed"] = {"embeddings": arrays["W_E"]}, {"embeddings": arrays["W_pos"]}
    d_model, d_head = arrays["W_Q"].shape[2:]
    for layer in range(2):
        prefix = f"transformer/layer_{layer}/"
        for name, module in (("W_Q", "query"), ("W_K", "key"), ("W_V", "value")):
            joined = arrays[name][layer].swapaxes(0, 1).reshape(d_model, -1) * (d_head**0.5 if name == "W_Q" else 1)
            params[f"{prefix}attn/{module}"] = {"w": joined, "b": np.full(joined.shape[1], bias)}
        params[f"{prefix}attn/linear"] = {"w": arrays["W_O"][layer].reshape(-1, d_model), "b": np.zeros(d_model)}
        params[f"{prefix}mlp/linear_1"] = {"w": arrays["W_in"][layer], "b": np.zeros(1)}
        params[f"{prefix}mlp/linear_2"] = {"w": arrays["W_out"][layer], "b": np.zeros(d_model)}
    inputs = SimpleNamespace(
        encoding_map={name: prefix for prefix, name in enumerate(TOKENS)}, bos_token=BOS, pad_token=PAD
    )
    outputs = SimpleNamespace() if numerical else SimpleNamespace(encoding_map={"c": 2, "a": 0, "b": 1})
    config = SimpleNamespace(num_layers=2, num_heads=2, key_size=d_head, layer_norm=norm, causal=causal)
    return SimpleNamespace(params=params, model_config=config, residual_labels=list(residual), input_encoder=inputs,
                           output_encoder=outputs)  # fmt: skip


@pytest.mark.parametrize("numerical", [False, True])
def test_an_assembled_model_of_tracr_is_the_same_program(numerical, tmp_path):
    pack = read_compiled(write_pack(tmp_path, numerical=numerical))
    known = from_tracr(assembled(numerical=numerical), n=256)
    batch = everything(pack.task)
    inputs = batch.model_inputs()
    torch.testing.assert_close(known.model(batch.tokens, **inputs), pack.model(batch.tokens, **inputs))
    assert {head: truth.truth for head, truth in known.heads.items()} == {
        head: truth.truth for head, truth in pack.heads.items()
    }
    program = known.task.program
    for row, (tokens, targets) in enumerate(zip(program.examples, program.targets, strict=True)):
        word = [TOKENS[token] for token in tokens if TOKENS[token] in LETTERS]
        assert TOKENS[tokens[0]] == BOS, row
        assert (tokens[len(word) + 1 :] == TOKENS.index(PAD)).all(), row
        expected = [answer(word, place, numerical) for place in range(len(word))]
        np.testing.assert_allclose(targets[1 : len(word) + 1], expected, atol=1e-4)
    assert {len([truth for truth in row if truth < 3]) for row in program.examples} == set(range(1, POS + 1))
    again = from_tracr(assembled(numerical=numerical), n=256)
    assert np.array_equal(again.task.program.examples, program.examples)
    with pytest.raises(ValueError, match="was not read from a pack"):
        Compiled.from_description(known.task.describe())


def test_a_causal_program():
    """It counts the equal letters so far; nothing reads the letter before."""
    known = from_tracr(assembled(numerical=True, causal=True), n=256)
    assert known.task.attention == known.model.cfg.attention == "causal"
    program = known.task.program
    for tokens, targets in zip(program.examples, program.targets, strict=True):
        word = [TOKENS[token] for token in tokens if TOKENS[token] in LETTERS]
        expected = [answer(word[: place + 1], place, True) for place in range(len(word))]
        np.testing.assert_allclose(targets[1 : len(word) + 1], expected, atol=1e-4)
    assert not program.relations[..., ~np.tri(program.examples.shape[1], dtype=bool)].any()
    assert {head: truth.truth for head, truth in known.heads.items()} == {
        (0, 0): "idle", (0, 1): "misleading", (1, 0): "faithful", (1, 1): "idle",
    }  # fmt: skip


def test_assembled_models_that_cannot_be_read():
    with pytest.raises(ValueError, match=r"assembled is a dict that cannot be read .*pass what compile_rasp_to_model"):
        from_tracr({})
    with pytest.raises(ValueError, match=r"cannot be read \(attn/query of layer 0 has a bias\)"):
        from_tracr(assembled(bias=1.0))
    with pytest.raises(ValueError, match="assembled has LayerNorm"):
        from_tracr(assembled(norm=True))
    with pytest.raises(ValueError, match="output is 'nothing'; choose output among previous"):
        from_tracr(assembled(), output="nothing")
    twice = [name.replace("indices:0", "other:a").replace("indices:1", "other:b").replace("indices:2", "other:c")
             for name in RESIDUAL]  # fmt: skip
    words = r"2 variables could be the output; choose output among other, previous\. The program's is the `label` of"
    with pytest.raises(ValueError, match=words):
        from_tracr(assembled(residual=twice))
    assert from_tracr(assembled(residual=twice), output="previous", n=64).task.answer_names == LETTERS
    assert AT["previous:a"] < AT["previous:b"]


def test_the_output_is_the_variable_that_the_assembled_model_returns():
    """tracr keeps it in the function that builds the model; names are also found without tracr's numbers."""
    twice = [name.replace("indices:0", "copy_7:a").replace("indices:1", "copy_7:b").replace("indices:2", "copy_7:c")
             for name in RESIDUAL]  # fmt: skip

    def model_that_returns(variable):
        output_space = SimpleNamespace(basis=[SimpleNamespace(name=variable, value=letter) for letter in LETTERS])
        model = assembled(residual=twice)
        model.get_compiled_model = lambda: output_space
        return model

    def read(model, **options):
        weights = from_tracr(model, n=64, **options).task.program.weights["W_U"]
        return [twice[row] for row in weights.argmax(0)]

    for variable in ("previous", "copy_7"):
        assert read(model_that_returns(variable)) == [f"{variable}:{letter}" for letter in LETTERS]
    assert read(model_that_returns("previous"), output="copy") == read(model_that_returns("copy_7"))
    model = assembled(residual=twice)
    model.get_compiled_model = lambda: None
    with pytest.raises(ValueError, match="2 variables could be the output"):
        from_tracr(model)


def test_a_program_without_an_mlp(tmp_path):
    path = write_pack(tmp_path, change=replaced("d_mlp", 0), W_in=np.zeros((2, 16, 0), np.float32),
                      W_out=np.zeros((2, 0, 16), np.float32))  # fmt: skip
    known = read_compiled(path)
    assert known.model.cfg.d_mlp == 0
    assert network(known.task.program).cfg == known.model.cfg


def test_padding_is_no_source_of_another_example():
    real = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)
    assert other_example(real).tolist() == [[3, 2, 0, 3], [0, 0, 0, 0], [1, 0, 0, 1], [2, 2, 0, 2]]
