"""Values in the types of their annotations: what is converted, what is refused, and how errors name it."""

import json
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import pytest
from jaxtyping import Float

import interp
from hooks import BracketStates, TransformerConfig
from hooks.checks import shown
from hooks.files import parse_json
from hooks.typed import COUNT, MAY_BE_INFINITE, MAY_BE_MISSING, SHARE, Axes, check_field_types, restored
from interp.cli.sweep import read_sweep
from interp.sweeps import ModelSpec
from interp.tasks import Lego, Vocab
from interp.view.page import Section

pytestmark = pytest.mark.usefixtures("as_a_user")


@dataclass(frozen=True, kw_only=True)
class Cost:
    seconds: Annotated[float, COUNT]
    kind: Literal["wall", "cpu"] = "wall"


@dataclass(frozen=True, kw_only=True)
class Record:
    name: str
    costs: tuple[Cost, ...] = ()
    share: Annotated[float, SHARE, MAY_BE_MISSING] = 0.5
    most: Annotated[float, MAY_BE_INFINITE] = 1.0
    pair: tuple[int, int] | None = None
    steps: int | tuple[int, ...] | Literal["all"] = 1
    labels: dict[str, int] = field(default_factory=dict)


def test_mappings_lists_and_missing_numbers_become_what_the_fields_are():
    saved = {"name": "a", "costs": [{"seconds": 1}], "share": None, "most": "inf", "pair": [1, 2], "labels": {"x": 3}}
    record = restored(Record, saved)
    assert (record.costs, record.pair, record.most, record.labels) == ((Cost(seconds=1),), (1, 2), np.inf, {"x": 3})
    assert np.isnan(record.share)
    assert restored(Record, {"name": "a"}) == Record(name="a")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"costs": [{"seconds": 1}, {"seconds": "1"}]}, r"^costs\[1\]\.seconds is '1'; it must be a finite number\.$"),
        ({"costs": [{"seconds": -1}]}, r"^costs\[0\]\.seconds is -1.0; it must be at least 0\.$"),
        ({"costs": [{}]}, r"^costs\[0\] lacks the fields 'seconds'"),
        ({"costs": [{"seconds": 1, "minutes": 2}]}, r"^costs\[0\] has unknown fields 'minutes'"),
        ({"costs": [{"seconds": 1, "kind": "sun"}]}, r"^costs\[0\]\.kind is 'sun'; choose one of wall, cpu"),
        ({"costs": {"seconds": 1}}, r"^costs is \{'seconds': 1\}; it must be a tuple"),
        ({"name": None}, "^name is None; it must be a string"),
        ({"share": 1.5}, "^share is 1.5; it must be from 0 to 1"),
        ({"share": True}, "^share is True; it must be a finite number"),
        ({"share": "nan"}, "^share is 'nan'; it must be a finite number"),
        ({"pair": [1]}, r"^pair is \[1\]; it must have 2 elements, not 1"),
        ({"steps": [1, "1"]}, r"^steps\[1\] is '1'; it must be an integer"),
        ({"steps": "none"}, "^steps is 'none'; it must be an integer or a tuple or 'all'"),
        ({"labels": {"x": 1.5}}, r"^labels\.x is 1.5; it must be an integer"),
        ({"labels": {"\udcff": 1}}, r"^labels \(key\) has a lone surrogate \('\\udcff'"),
        ({"name": "a\ud800"}, r"^name has a lone surrogate \('\\ud800', at character 1\)"),
        ({"name": ["x" * 5000]}, "^name is .{,110}; it must be a string"),
        ({"x" * 5000: 1}, "^the Record has unknown fields 'x.{,110}; was it"),
    ],
)
def test_an_error_names_the_place_and_what_was_found(changes, words):
    with pytest.raises(ValueError, match=words):
        restored(Record, {"name": "a", **changes})


@dataclass(frozen=True, kw_only=True)
class Table:
    names: Annotated[tuple[str, ...], Axes("row")]
    values: Annotated[Float[np.ndarray, "row column"], SHARE]
    heads: Annotated[tuple[tuple[int, ...], ...], Axes("row ...")] = ()

    def __post_init__(self):
        check_field_types(self)


def test_axes_of_the_same_name_have_the_same_length():
    half = np.full((2, 3), 0.5)
    assert Table(names=("a", "b"), values=half, heads=[[1], [1, 2]]).heads == ((1,), (1, 2))
    for wrong, words in (
        ({"names": ("a",)}, r"values has 2 along the axis 'row'; it must have 1 as in names"),
        ({"values": half[0]}, "values has 1 axes; it must have 2: row column"),
        ({"values": half.astype(int)}, "values has the dtype int64; it must be float"),
        ({"values": half + 1}, r"values has 1.5 at \[0, 0\]; it must be from 0 to 1"),
        ({"heads": ((1,),)}, "heads has 1 along the axis 'row'; it must have 2 as in names"),
    ):
        with pytest.raises(ValueError, match=words):
            Table(**{"names": ("a", "b"), "values": half, "heads": ((1,), (2,)), **wrong})


def test_what_was_found_is_shown_in_one_short_line():
    for value in ("x" * 5000, "\ud800" * 300, "a\nb" * 100, ["y" * 5000] * 9, {"k" * 900: 1}, b"z" * 5000, object()):
        text = shown(value)
        assert len(text) <= 100
        assert "\n" not in text
        text.encode("utf-8")


def test_json_with_a_key_twice_or_numbers_that_are_none_is_refused():
    assert parse_json('{"a": [1, null]}') == {"a": [1, None]}
    for text in ('{"a": 1, "a": 1}', '[{"b": {"a": 1, "a": 2}}]', '{"a": NaN}', "[-Infinity]"):
        with pytest.raises(ValueError, match=r"there twice|not a number of JSON"):
            parse_json(text)


TASK = '[task]\nname = "lego"\nn_vars = 2\n'


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('[settings]\nmimicking = "x"', r"\[settings\] mimicking is 'x'; it must be a Mimicking"),
        ("[settings]\nmimicking = {steps = '3'}", r"\[settings\] mimicking\.steps is '3'; it must be an integer"),
        ("[settings]\nmimicking = {step = 3}", r"\[settings\] mimicking has unknown fields 'step'"),
        ("[settings]\ncurriculum = 3", r"\[settings\] curriculum is 3; it must be a tuple"),
        ("[settings]\ncurriculum = [[2]]", r"\[settings\] curriculum\[0\] is \[2\]; it must have 2 elements"),
        ('[settings]\nsnapshots = [1, "1"]', r"\[settings\] snapshots\[1\] is '1'; it must be an integer"),
        ("[settings]\ncurriculum = []\nsteps = 1979-05-27", r"\[settings\] steps is datetime\.date\(.*an integer"),
        ("[settings]\nn_eval = true", r"\[settings\] n_eval is True; it must be an integer"),
        ("[settings]\nlearning_rate = nan", r"\[settings\] learning_rate is nan; it must be a finite number"),
        ("[model]\nhead_patterns = {a = 1}", r"\[model\] head_patterns is \{'a': 1\}; it must be a tuple or a Path"),
        ("[model]\nembedding = 1", r"\[model\] embedding is 1; it must be a BracketStates or None"),
        ("[model]\nn_layers = 2.0", r"\[model\] n_layers is 2.0; it must be an integer"),
        ("[vary]\nseed = [1.5]", r"\[vary\] .*seed.* is 1.5; it must be an integer"),
        ("[vary]\nseed = ['x']", r"\[vary\] .*seed.* is 'x'; it must be an integer"),
        ("[vary.settings]\nmimicking = ['x']", r"\[vary\] .*mimicking is 'x'; it must be a Mimicking"),
        ("[vary.model]\nn_layers = [true]", r"\[vary\] .*n_layers is True; it must be an integer"),
    ],
)
def test_a_sweep_file_with_a_value_of_another_type_is_named(tmp_path, toml, words):
    (tmp_path / "grid.toml").write_text(TASK + toml)
    with pytest.raises(ValueError, match=rf"grid\.toml: {words}"):
        read_sweep(tmp_path / "grid.toml")


def test_the_same_values_given_in_python_are_refused():
    task = Lego(n_vars=2)
    config, settings = interp.config_for(task, n_layers=1), interp.TrainSettings()
    assert interp.TrainSettings(curriculum=[[2, 3]]) == interp.TrainSettings(curriculum=((2, 3),))
    for call, words in (
        (lambda: interp.TrainSettings(mimicking={"steps": 3}), r"mimicking is \{'steps': 3\}; it must be a Mimicking"),
        (lambda: interp.TrainSettings(snapshots=[1, "1"]), r"snapshots\[1\] is '1'"),
        (lambda: interp.config_for(task, embedding=1), "embedding is 1; it must be a BracketStates or None"),
        (lambda: ModelSpec(task=task, config=config, settings=settings, seed="0"), "seed is '0'; it must be an int"),
        (lambda: ModelSpec(task="lego", config=config, settings=settings, seed=0), "task is 'lego'; it must be a Task"),
        (lambda: ModelSpec(task=task, config=3, settings=settings, seed=0), "config is 3; it must be a Transformer"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_a_config_is_restored_from_plain_values():
    embedding = BracketStates(n_types=2, max_depth=3)
    config = TransformerConfig(d_vocab=embedding.d_vocab, d_model=64, n_heads=2, embedding=embedding)
    assert TransformerConfig.from_dict(json.loads(config.to_json())) == config
    for changes, words in (
        ({"embedding": {"n_types": "2", "max_depth": 3}}, r"embedding\.n_types is '2'"),
        ({"n_layers": None}, "n_layers is None; it must be an integer"),
        ({"head_patterns": [[{"kind": "banana"}]]}, r"head_patterns\[0\]\[0\]"),
    ):
        with pytest.raises(ValueError, match=words):
            TransformerConfig.from_dict(config.to_dict() | changes)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\udc80b"])
def test_a_lone_surrogate_is_refused_where_it_comes_in(tmp_path, text):
    section = Section(title="a")
    for name, call in (
        ("title", lambda: interp.report([section], tmp_path / "page.html", title=text)),
        ("lead", lambda: interp.report([section], tmp_path / "page.html", title="a", lead=text)),
        ("text", lambda: Section(title="a", text=text)),
        ("names", lambda: Vocab(["a", text])),
        ("alphabet", lambda: Lego(n_vars=2, alphabet=f"abcd{text}")),
        ("name", lambda: interp.heads.register_kind(text, lambda task, batch: None)),
        ("family", lambda: interp.config_for(Lego(n_vars=2), family=text)),
    ):
        with pytest.raises(ValueError, match=rf"^{name} has a lone surrogate"):
            call()
