"""What the README shows runs, as does the demo."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_readme_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert "tensor([1, 2])" in capsys.readouterr().out


def test_the_demo_runs(capsys):
    runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="__main__")
    assert "reaches the letters [0, 1, 2, 3, 4, 5] and no others" in capsys.readouterr().out
