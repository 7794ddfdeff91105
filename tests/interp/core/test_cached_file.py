"""Keys of contents, and computed values stored under them."""

import pytest

from interp.core.cached_file import CachedFile
from interp.core.content_key import content_key, digest_of_files


def test_keys_are_those_of_earlier_versions():
    assert content_key({"b": [1, None], "a": "x"}) == "8ea2c0f31b799f047143"
    assert len(content_key([], length=64)) == 64


def test_a_digest_depends_on_names_and_contents(tmp_path):
    first, second, third = (tmp_path / name for name in ("a", "b", "c"))
    first.write_text("1")
    second.write_text("2")
    third.write_text("2")
    assert digest_of_files([first, second]) == digest_of_files([second, first])
    assert len({digest_of_files(paths) for paths in ([first], [second], [third], [first, second])}) == 4


def numbers(content):
    return [float(number) for number in content["numbers"]]


def test_a_stored_value_is_read_under_its_key_only(tmp_path):
    cached = CachedFile(tmp_path / "tables" / "a.json", "key")
    assert cached.read(numbers) is None
    cached.write({"numbers": [1, 2]})
    assert cached.read(numbers) == [1, 2]
    assert CachedFile(cached.path, "other").read(numbers) is None


@pytest.mark.parametrize("text", ["", "[1]", '{"numbers": [1]}', '{"key": "key"}', '{"key": "key", "numbers": "x"}'])
def test_a_file_that_cannot_be_read_is_computed_again(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert CachedFile(path, "key").read(numbers) is None
