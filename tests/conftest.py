import os
import shutil

# Set before torch is loaded and inherited by subprocesses: with two workers on two cores, two threads each are many
# times slower than one.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"  # no network access

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """One torch thread, for the same results everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser or os.environ.get("UNMYOPIC_NEEDS_BROWSER"):
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="no Chromium on this machine"))


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
