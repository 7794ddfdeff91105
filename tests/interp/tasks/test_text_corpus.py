"""Where text comes from: each document in one split, the same text the same fingerprint, errors that say what to do."""

import copy
import json
import os
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import documents

from interp.tasks import Corpus
from interp.tasks.base import Split
from interp.tasks.text.corpus import PYTHON_FILE

SPLITS = Split.__args__


@pytest.fixture
def folder(tmp_path):
    """Documents as files, in folders of folders."""
    for name, text in documents(10).items():
        path = tmp_path / "texts" / f"part {int(name[:3]) % 3}" / name.replace(".py", ".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "texts"


@settings(max_examples=40, deadline=None)
@given(st.sets(st.text(min_size=1, max_size=8), min_size=3, max_size=120))
def test_every_document_is_in_one_split(names):
    corpus = Corpus(documents=dict.fromkeys(names, "some text"))
    split = [name for split_name in SPLITS for name in corpus.split[split_name]]
    assert sorted(split) == sorted(names)
    n_held_out = max(1, round(0.05 * len(names)))
    assert [len(corpus.split[split_name]) for split_name in SPLITS] == [
        len(names) - 2 * n_held_out,
        n_held_out,
        n_held_out,
    ]


def test_the_split_is_by_name_alone_and_not_by_its_order():
    texts = documents(200)
    corpus = Corpus(documents=texts)
    again = Corpus(documents=dict.fromkeys(reversed(texts), "another text"))
    assert corpus.split == again.split
    assert list(corpus.split["test"]) == sorted(corpus.split["test"])
    assert corpus.split["test"] != tuple(sorted(texts))[:10]
    assert corpus.texts("test") == [texts[name] for name in corpus.split["test"]]


def test_the_fingerprint_is_of_names_and_texts():
    texts = documents(5)
    corpus = Corpus(documents=texts)
    assert corpus.fingerprint == Corpus(documents=dict(reversed(texts.items()))).fingerprint
    assert corpus == Corpus(documents=texts)
    assert hash(corpus) == hash(Corpus(documents=texts))
    first = next(iter(texts))
    changed = [texts | {first: texts[first] + " "}, texts | {"more": "x"}, {**texts, "zzz" + first: texts[first]}]
    moved = {"a": "bc", "d": "e", "f": "g"}, {"ab": "c", "d": "e", "f": "g"}  # the same letters in a row
    prints = [
        corpus.fingerprint,
        *(Corpus(documents=changed_documents).fingerprint for changed_documents in (*changed, *moved)),
    ]
    assert len(set(prints)) == len(prints)
    assert corpus != "something else"


def test_documents_without_text_are_left_out():
    assert set(Corpus(documents={"a": "x", "b": " \n", "c": "y", "d": "", "e": "z"}).documents) == {"a", "c", "e"}


def test_a_folder_is_read_by_its_pattern(folder):
    corpus = Corpus.from_folder(folder)
    assert set(corpus.documents) == {f"part {int(name[:3]) % 3}/{name[:3]}.txt" for name in documents(10)}
    assert corpus.documents["part 1/004.txt"] == documents(10)["004.py"]
    assert len(Corpus.from_folder(folder, "part 0/*").documents) == 4


@pytest.mark.parametrize("make", ["documents", "folder", "python"])
def test_a_corpus_survives_a_manifest_and_a_pickle(make, folder):
    makers = {
        "documents": lambda: Corpus(documents=documents(5)),
        "folder": lambda: Corpus.from_folder(folder, "**/*.txt"),
        "python": Corpus.python,
    }
    corpus = makers[make]()
    described = json.loads(json.dumps(corpus.describe()))
    assert described["source"] == make
    again = Corpus.from_description(described)
    assert again == corpus
    assert again.describe() == corpus.describe()
    assert copy.deepcopy(corpus) == corpus
    pickled = pickle.dumps(corpus)
    assert pickle.loads(pickled) == corpus
    if make != "documents":
        assert len(pickled) < 1000  # where it is, not what it says


def test_python_is_its_library_without_tests_and_packages():
    corpus = Corpus.python()
    assert corpus is Corpus.python()
    assert {"ast.py", "json/decoder.py", "asyncio/tasks.py"} <= set(corpus.documents)
    assert "def dumps(" in corpus.documents["json/__init__.py"]
    folders = {folder for name in corpus.documents for folder in name.split("/")}
    assert not folders & {"test", "tests", "site-packages", "idlelib", "encodings", "stringprep.py"}
    assert not any(name.startswith("_sysconfigdata") for name in corpus.documents)
    assert sum(map(len, corpus.documents.values())) > 5_000_000


def test_python_is_the_same_text_whichever_python_runs():
    corpus = Corpus.python()
    assert (corpus.source["python"], corpus.fingerprint) == ("3.11.7", "364dee549299e60e")
    licence = PYTHON_FILE.with_name("python_3_11_7.LICENSE.txt").read_text()
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in licence


def test_another_python_is_named():
    described = {"source": "python", "python": "3.1.4", "fingerprint": "0123456789abcdef"}
    words = r"of Python 3\.1\.4 had fingerprint 0123456789abcdef; the library of Python 3\.11\.7 has 364dee"
    with pytest.raises(ValueError, match=words):
        Corpus.from_description(described)


def test_a_folder_that_changed_is_noticed(folder):
    described = Corpus.from_folder(folder).describe()
    (folder / "part 0" / "000.txt").write_text("something new")
    with pytest.raises(ValueError, match=r"had fingerprint \w{16}; the folder .*the text has changed"):
        Corpus.from_description(described)


def test_an_unknown_source_is_refused():
    with pytest.raises(ValueError, match="source of the text is 'the moon'; known sources: python, folder, hub"):
        Corpus.from_description({"source": "the moon"})


def test_too_few_documents():
    with pytest.raises(ValueError, match="the corpus has 0 non-empty documents, of 0 documents in memory; three"):
        Corpus(documents={})
    with pytest.raises(ValueError, match="has 2 non-empty documents"):
        Corpus(documents={"a": "x", "b": "y", "c": " "})


def test_documents_that_are_no_text(as_a_user):
    with pytest.raises(ValueError, match=r"documents\['b'\] is bytes; it must be a string"):
        Corpus(documents={"a": "x", "b": b"y"})


def test_large_documents_at_hand():
    with pytest.raises(ValueError, match=r"documents has 1000002 characters.*Corpus\.from_folder"):
        Corpus(documents={"a": "x" * 1_000_000, "b": "y", "c": "z"})


def test_an_unknown_split(as_a_user):
    with pytest.raises(ValueError, match="split is 'all'; choose one of train, validation, test"):
        Corpus(documents=documents(4)).texts("all")


def test_folders_that_cannot_be_read(folder, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"path is .*nowhere; there is no such folder"):
        Corpus.from_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"004\.txt, a file; give its folder"):
        Corpus.from_folder(folder / "part 1" / "004.txt")
    with pytest.raises(ValueError, match=r"no file in .*texts matches the pattern '\*\.md'"):
        Corpus.from_folder(folder, "*.md")
    with pytest.raises(ValueError, match=r"pattern is '/x/\*'.*relative to the folder"):
        Corpus.from_folder(folder, "/x/*")
    (folder / "latin.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt is not UTF-8; convert it"):
        Corpus.from_folder(folder)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ValueError, match="which this user may not read"):
        Corpus.from_folder(folder)


class Rows(dict):
    """The parts of the output of `datasets.load_dataset` that are used."""

    @property
    def column_names(self):
        return list(self)


def test_a_hub_data_set(monkeypatch):
    calls = []

    def load(name, config, *, split, revision):
        calls.append((name, config, split, revision))
        return Rows(text=["one", "two", "three", "four"], label=[0, 1, 2, 3])

    monkeypatch.setattr("datasets.load_dataset", load)
    corpus = Corpus.from_hub("some/stories", most=4, revision="abc")
    assert calls == [("some/stories", None, "train[:4]", "abc")]
    assert list(corpus.documents.values()) == ["one", "two", "three", "four"]
    assert Corpus.from_description(json.loads(json.dumps(corpus.describe()))) == corpus
    with pytest.raises(ValueError, match="column is 'story'; the data set 'some/stories' has text, label"):
        Corpus.from_hub("some/stories", column="story")


def test_a_hub_without_a_network(monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach it")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(ConnectionError, match="the data set 'some/stories' is not on this machine, and the hub cannot"):
        Corpus.from_hub("some/stories")

    def unknown(*_, **__):
        raise FileNotFoundError("no such thing")

    monkeypatch.setattr("datasets.load_dataset", unknown)
    with pytest.raises(ValueError, match="the data set 'some/stories' cannot be read: no such thing"):
        Corpus.from_hub("some/stories")


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff" * 1000])
def test_lone_surrogates_are_refused(text):
    message = r"documents\['002.py'\] has a lone surrogate \(.*at character [01]\), which is not text. Decode"
    with pytest.raises(ValueError, match=message) as raised:
        Corpus(documents={**documents(5), "002.py": text})
    assert len(str(raised.value)) < 200
