from types import SimpleNamespace

import pytest

from interp.cli.main import main


def test_commands_pass_the_device_on(tmp_path, monkeypatch):
    devices = []

    def run(*, device, **options):
        devices.append(device)
        return SimpleNamespace(page="page", to_dict=dict)

    def train(*arguments, device, **options):
        devices.append(device)
        return SimpleNamespace(history=(), seconds=0.0, final_accuracy=[], at_chance=())

    methods = dict.fromkeys(("choose", "listing", "draw", "check", "again", "bundle", "plan"))
    study = SimpleNamespace(title="Toy", run=run, **methods)
    monkeypatch.setattr(
        "interp.cli.reproduce.study_entry_points", lambda: {"toy": SimpleNamespace(value="toy", load=lambda: study)}
    )
    monkeypatch.setattr("interp.training.train.train", train)
    for place in (["--device", "cuda:1"], []):
        for command in (["reproduce", "toy"], ["train", "lego", "--out", str(tmp_path / "run"), "--n-vars", "2"]):
            monkeypatch.setattr("sys.argv", ["interp", *command, *place])
            with pytest.raises(SystemExit) as stopped:
                main()
            assert not stopped.value.code
    assert devices == ["cuda:1", "cuda:1", None, None]


def test_a_missing_gpu_is_a_one_line_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["interp", "train", "lego", "--out", str(tmp_path / "run"), "--device", "cuda"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "error: device is 'cuda', not available; choose one of cpu" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
