"""Models with pretrained sources: trained in stages, counted, resumed; keys of other models are unchanged."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from short_runs import stamp
from toys import CONFIG, FAILING, SETTINGS, STUDY, TASK, accuracy

import interp
from case_studies.frame.evidence import settings_of
from case_studies.study import Study
from interp.core.progress import Count
from interp.sweeps.cost import training_operations
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego
from interp.training.folder import RunFolder
from interp.training.identity import ForeignRun
from interp.training.pretrained import pretrained_config

LONGER = Lego(n_vars=3, sentence_format="compact")
SOURCE = ModelSpec(
    task=LONGER,
    config=interp.config_for(LONGER, n_layers=1, d_model=16, n_heads=2),
    settings=replace(SETTINGS, steps=1),  # less work than what starts from it
    seed=7,
)
TUNED = pretrained_config(TASK, SOURCE.config)


def tuned(seed, source=SOURCE, **more):
    return ModelSpec(task=TASK, config=TUNED, settings=SETTINGS, seed=seed, pretrained=source, **more)


def study(*specs, extra=()):
    claim = replace(FAILING, needs=("tuned", *(["few"] if extra else [])), measure=first_group)
    return Study(name="tuned", title="", lead="", claims=[claim], groups=lambda size: {"tuned": specs, "few": extra})


def first_group(evidence):
    return accuracy(replace(evidence, groups={"tuned": evidence.groups["tuned"]}))


@pytest.fixture
def counted(monkeypatch):
    """Totals of all progress bars."""
    totals = []
    start = Count.__init__

    def told(self, what, total, **options):
        totals.append((what, total))
        start(self, what, total, **options)

    monkeypatch.setattr(Count, "__init__", told)
    return totals


def test_keys_of_specs_without_a_source_are_unchanged():
    plain = ModelSpec(task=TASK, config=CONFIG, settings=SETTINGS, seed=0)
    assert plain.key == "3df56813c8bf7e5bd4bd"
    assert set(plain.description) == {"task", "config", "settings", "seed"}
    assert settings_of([plain]).keys() == {"models", "seeds", "keys", "task", "config", "settings"}


def test_the_source_is_part_of_the_key():
    symbols = (("+", "-"), ("-", "+"))
    specs = [
        ModelSpec(task=TASK, config=TUNED, settings=SETTINGS, seed=0),
        tuned(0),
        tuned(0, replace(SOURCE, seed=8)),
        tuned(0, "bert-base-uncased"),
        tuned(0, symbols=symbols),
    ]
    assert len({spec.key for spec in specs}) == len(specs)
    assert specs[1].description["pretrained"] == SOURCE.key
    assert specs[3].description["pretrained"] == "bert-base-uncased"
    assert specs[4].description["symbols"] == {"+": "-", "-": "+"}
    assert tuned(0, symbols=symbols[::-1]).key == specs[4].key
    assert len({training_operations(spec) for spec in specs}) == 1


def test_sources_are_trained_first_and_once(reproduce, tmp_path, counted):
    run = reproduce(study(tuned(0), tuned(1)))
    assert run.trained == [0, 1, 7]
    assert ("training models", 3) in counted
    models = run.content["manifest"]["models"]
    assert (models["used"], models["there"], models["trained_now"]) == (3, 3, 3)
    source = RunFolder(tmp_path / "models" / SOURCE.key)
    for spec in (tuned(0), tuned(1)):
        start = interp.pretrained(TASK, source.path, seed=spec.seed)
        by_hand = interp.train(start, TASK, SETTINGS, seed=spec.seed)
        trained = RunFolder(tmp_path / "models" / spec.key).load_model()
        assert all(torch.equal(a, b) for a, b in zip(trained.parameters(), by_hand.model.parameters(), strict=True))
    with source.writing():
        source.append_metrics(
            {"steps_done": 10**6, "seconds": 5000.0, "loss": 1.0, "accuracy": [], "validation_loss": []}
        )
    stamp(source.path)
    again = reproduce(study(tuned(0), tuned(1)))
    assert again.trained == []
    assert again.content["manifest"]["seconds"] >= 5000


def test_a_chain_of_sources(reproduce):
    second = ModelSpec(
        task=LONGER, config=pretrained_config(LONGER, SOURCE.config), settings=SETTINGS, seed=3, pretrained=SOURCE
    )
    third = tuned(1, second)
    assert third.sources == (SOURCE, second)
    run = reproduce(study(third))
    assert run.trained == [1, 3, 7]
    assert run.content["manifest"]["models"]["used"] == 3


def test_a_source_that_a_claim_also_needs_is_trained_once(reproduce):
    run = reproduce(study(tuned(0), extra=[SOURCE]))
    assert run.trained == [0, 7]
    assert run.content["manifest"]["models"]["used"] == 2


def test_interrupted_training_resumes_in_its_stage(reproduce, tmp_path, monkeypatch):
    steps = []
    train = interp.sweeps.parallel.train

    def stopped(model, task, settings, **options):
        steps.append(options["seed"])
        if options["seed"] == 1:
            raise KeyboardInterrupt
        return train(model, task, settings, **options)

    with monkeypatch.context() as patch:
        patch.setattr("interp.sweeps.parallel.train", stopped)
        with pytest.raises(KeyboardInterrupt):
            reproduce(study(tuned(0), tuned(1)))
    assert steps == [7, 0, 1]
    assert RunFolder(tmp_path / "models" / SOURCE.key).finished
    again = reproduce(study(tuned(0), tuned(1)))
    assert again.trained == [1]


@pytest.mark.slow
def test_a_missing_source_is_trained_again_only_if_needed(reproduce, tmp_path):
    reproduce(study(tuned(0)))
    source = RunFolder(tmp_path / "models" / SOURCE.key)
    source.clear()
    (tmp_path / "tuned/quick/measured/figure-1.all.json").unlink()
    run = reproduce(study(tuned(0)))
    assert (run.trained, run.measured) == ([], ["accuracy"])
    assert run.content["manifest"]["models"]["there"] == 1
    assert reproduce(study(tuned(0), tuned(1))).trained == [1, 7]
    assert reproduce(study(tuned(0), tuned(1)), fresh=True).trained == [0, 1, 7]


def test_settings_describe_the_source(reproduce):
    symbols = (("+", "-"), ("-", "+"))
    run = reproduce(study(tuned(0, symbols=symbols), tuned(1, symbols=symbols)))
    said = run.groups["tuned"]["pretrained"]
    assert said == {"by": f"model {SOURCE.key} (task lego, seed 7)", "symbols": {"+": "-", "-": "+"}}
    assert f"model {SOURCE.key} (task lego, seed 7)" in "".join(run.claim_pages.values())
    mixed = settings_of(
        [tuned(0), tuned(0, "some/name"), ModelSpec(task=TASK, config=TUNED, settings=SETTINGS, seed=0)]
    )
    assert mixed["pretrained"]["by"] == {"varies": [f"model {SOURCE.key} (task lego, seed 7)", "some/name", None]}
    json.dumps(mixed)


def test_a_config_different_from_the_source_is_refused(reproduce):
    wrong = replace(tuned(0), config=interp.config_for(TASK, n_layers=2, d_model=16, n_heads=2))
    with pytest.raises(ValueError, match=r"seed 0\): config is not that of the pretrained model.*n_layers is 2, not 1"):
        reproduce(study(wrong))


def test_a_model_that_is_not_that_of_its_key_is_refused(reproduce, tmp_path):
    reproduce()
    first, second, *_ = sorted((tmp_path / "models").iterdir())
    for name in ("model.safetensors", "manifest.json"):
        kept = (first / name).read_bytes()
        shutil.copy(second / name, first / name)
        with pytest.raises(ForeignRun, match=first.name):
            reproduce()
        with pytest.raises(ForeignRun, match=first.name):
            reproduce(fresh=False, only=["figure-1.all"])
        (first / name).write_bytes(kept)
    first.rename(tmp_path / "models/between")
    second.rename(first)
    (tmp_path / "models/between").rename(second)
    with pytest.raises(ForeignRun, match="seed is"):
        STUDY.plan(folder=tmp_path)
    assert reproduce(fresh=True).trained == [0, 1, 2]
