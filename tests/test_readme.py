"""What the README shows runs, as do the examples."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_readme_trains_a_model(capsys, elsewhere):
    example = EXAMPLES[0].replace("count=10_000", "count=60")  # learns nothing, but takes a second
    assert example != EXAMPLES[0]
    exec(compile(example, "README.md", "exec"), {})
    assert "Evaluation(pairs=6, " in capsys.readouterr().out
    assert Path("runs/dates/model.safetensors").exists()


def test_the_readme_changes_a_graph(capsys):
    exec(compile(EXAMPLES[1], "README.md", "exec"), {})
    assert "tensor([1, 2])" in capsys.readouterr().out
    assert len(EXAMPLES) == 4


def test_the_readme_learns_from_a_distance_between_graphs(capsys):
    exec(compile(EXAMPLES[2], "README.md", "exec"), {})
    same, other = re.search(r"tensor\(\[(.*), (.*)\]\)", capsys.readouterr().out).groups()
    assert abs(float(same)) < 1e-6 < 1 < float(other)


def test_the_readme_checks_gradients(capsys):
    exec(compile(EXAMPLES[3], "README.md", "exec"), {})
    assert "label.weight" in capsys.readouterr().out


def test_the_history_example_runs(capsys):
    runpy.run_path(str(ROOT / "examples" / "history.py"), run_name="__main__")
    assert "reaches the letters [0, 1, 2, 3, 4, 5] and no others" in capsys.readouterr().out


def test_the_demo_trains_and_judges_and_fails_when_it_does_not_reach_its_promise(capsys, elsewhere, monkeypatch):
    import grapheme_nn.data

    generate = grapheme_nn.data.generate
    monkeypatch.setattr(grapheme_nn.data, "generate", lambda task, count, seed: generate(task, 1100, seed))
    with pytest.raises(SystemExit, match="below the 99% that this demo promises"):
        runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="__main__")
    assert "exact match on 1,000 dates never seen in training" in capsys.readouterr().out
