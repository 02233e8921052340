"""The command by another name: `python -m grapheme_nn`."""

from grapheme_nn.cli import app

app(prog_name="grapheme")
