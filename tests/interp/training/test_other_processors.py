"""Runs that were begun on another processor: torch is told to use other instructions, in a process of its own."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from short_runs import SHORT, new_model

import interp
from interp.tasks import Lego
from interp.training import TrainingRun
from interp.training.folder import RunFolder

TASK = Lego(n_vars=2, sentence_format="compact")
KILLED_AT = 8
BEGIN = f"""
import os, torch
import interp
from interp.tasks import Lego
from short_runs import SHORT, new_model

torch.set_num_threads(1)
assert torch.backends.cpu.get_cpu_capability() == "DEFAULT"
kill = lambda record: record["steps_done"] == {KILLED_AT} and os._exit(0)
task = Lego(n_vars=2, sentence_format="compact")
interp.train(new_model(task), task, SHORT, folder="run", on_record=kill)
"""


@pytest.mark.slow
def test_a_run_that_was_begun_on_another_processor_is_resumed(tmp_path):
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("these are the instructions of the other process")
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", BEGIN], cwd=tmp_path, env=environment, check=True)
    assert RunFolder(tmp_path / "run").read_metrics()[-1]["steps_done"] == KILLED_AT

    resumed = interp.train(new_model(TASK), TASK, SHORT, folder=tmp_path / "run")
    capability = torch.backends.cpu.get_cpu_capability()
    manifest = TrainingRun.load(tmp_path / "run").manifest
    assert manifest["hardware"]["capability"] == "DEFAULT"
    assert [place["hardware"]["capability"] for place in manifest["resumed_on"]] == [capability]

    # Its curves are those of a run in this process, up to rounding, which few steps hardly enlarge
    alone = interp.train(new_model(TASK), TASK, SHORT)
    assert [record["steps_done"] for record in resumed.history] == [record["steps_done"] for record in alone.history]
    losses = [[record["loss"] for record in run.history] for run in (resumed, alone)]
    np.testing.assert_allclose(*losses, rtol=1e-4)
