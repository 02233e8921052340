"""`grapheme train`, from a file to a folder, and what may go wrong on the way."""

import errno
import json
import os
import resource
import shutil
import signal
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import sleep
from unicodedata import normalize

import pytest

from grapheme_nn import __version__
from grapheme_nn.cli.progress import Report
from grapheme_nn.cli.trained import use
from grapheme_nn.data import Pair, generate, read_pairs, write_pairs
from grapheme_nn.training import Progress


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def settings(folder):
    return json.loads((folder / "config.json").read_text())["training"]


def test_training_says_what_it_does_and_how_to_use_the_model(grapheme, numbers, tiny, tmp_path):
    words = ["--out", tmp_path / "model", "--config", tiny, "--seed", 5, "--epochs", 20]
    result = grapheme("train", numbers, *words)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "input unit" not in result.stderr  # there is nothing to say of code points
    for words in (
        "numbers.tsv: 60 pairs, such as",
        "ended after",
        "s: all epochs are done; dev exact match",
        "6 of the pairs are held out (seed 5)",
        "epoch 1/20  loss",
        "epoch 20/20  loss",
        "examples/s",
        f"the model is in {tmp_path / 'model'}",
        f"grapheme predict {tmp_path / 'model'}",
    ):
        assert words in result.stderr
    assert {"model.safetensors", "config.json", "README.md"} <= contents(tmp_path / "model").keys()


def test_options_win_over_the_file_and_the_file_over_the_preset(grapheme, numbers, tmp_path):
    (tmp_path / "my.toml").write_text("epochs = 3\nwidth = 16\nweight_decay = 1\nlearning_rate = 0.01\n")
    words = ["--config", tmp_path / "my.toml", "--epochs", 1, "--out", tmp_path / "model"]
    assert grapheme("train", numbers, *words).exit_code == 0
    saved = settings(tmp_path / "model")
    assert (saved["epochs"], saved["width"], saved["weight_decay"]) == (1, 16, 1.0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("epoch = 3", "there is no setting 'epoch': did you mean 'epochs'?"),
        ("zzz = 3", "there is no setting 'zzz': the keys are "),
        ("epochs = 'three'", "epochs = 'three' does not fit: it should be a whole number"),
        ("epochs = true", "does not fit"),
        ("epochs = [3]", "does not fit"),
        ("target_unit = 'letter'", "target_unit = 'letter' does not fit: it should be 'codepoint' or "),
        ("epochs = 0", "epochs"),
        ("epochs =", "is not TOML"),
        ("loss = 'mse'", "mse"),
    ],
)
def test_a_wrong_settings_file_is_refused(grapheme, refused, numbers, tmp_path, content, says):
    (tmp_path / "my.toml").write_text(content)
    result = grapheme("train", numbers, "--config", tmp_path / "my.toml", "--out", tmp_path / "model")
    refused(result, 1, says, "my.toml")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("content", ["width = 7", "heads = 3", "layers = 0"])
def test_settings_that_do_not_fit_together_are_refused(grapheme, refused, numbers, tmp_path, content):
    (tmp_path / "my.toml").write_text(content)
    refused(grapheme("train", numbers, "--config", tmp_path / "my.toml", "--out", tmp_path / "model"), 1)


def test_a_missing_settings_file_is_refused(grapheme, refused, numbers, tmp_path):
    refused(grapheme("train", numbers, "--config", tmp_path / "no.toml"), 1, "no.toml does not exist")


def test_settings_out_of_range_are_wronguse(grapheme, refused, numbers, tmp_path):
    refused(grapheme("train", numbers, "--learning-rate", -1, "--out", tmp_path / "model"), 2, "learning_rate")


def test_a_dev_file_that_overlaps_is_warned_of(grapheme, numbers, tiny, tmp_path):
    write_pairs([*read_pairs(numbers)[:7], Pair("77", "777")], tmp_path / "dev.tsv")
    result = grapheme("train", numbers, "--dev", tmp_path / "dev.tsv", "--config", tiny, "--out", tmp_path / "model")
    assert result.exit_code == 0
    assert "warning: 7 of 8 pairs of" in result.stderr
    assert "held out" not in result.stderr


def test_few_pairs_are_all_learned_from_and_that_is_told(grapheme, tiny, tmp_path):
    write_pairs(generate("roman", 10, seed=0), tmp_path / "ten.tsv")
    result = grapheme("train", tmp_path / "ten.tsv", "--config", tiny, "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    same = "all of them are learned from, and the figures are those of the same pairs"
    assert f"no --dev, and only 10 pairs: {same}\n" in result.stderr
    assert "held out" not in result.stderr


def test_many_pairs_with_a_single_input_need_a_dev_file(grapheme, refused, tmp_path):
    (tmp_path / "one.tsv").write_text("a\tb\n" * 50)
    refused(grapheme("train", tmp_path / "one.tsv"), 1, "cannot hold out", "--dev")


def test_bad_lines_are_left_out_where_that_is_wished(grapheme, refused, numbers, tiny, tmp_path):
    file = tmp_path / "bad.tsv"
    file.write_text(numbers.read_text() + "only one column\n")
    words = ["train", file, "--config", tiny, "--out", tmp_path / "model"]
    refused(grapheme(*words), 1, "bad.tsv:61: has 1 column")
    assert not (tmp_path / "model").exists()
    result = grapheme(*words, "--skip-bad-lines")
    assert result.exit_code == 0
    assert "bad.tsv:61: has 1 column" in result.stderr


def test_a_model_is_not_overwritten_unasked(grapheme, refused, numbers, tiny, model, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    before = contents(tmp_path / "model")
    words = ["train", numbers, "--config", tiny, "--out", tmp_path / "model", "--seed", 9]
    refused(grapheme(*words), 1, "holds a model already", "--overwrite")
    assert contents(tmp_path / "model") == before
    for wrong in (["--config", numbers], ["--morph", "fold"], ["--device", "abacus"]):  # before anything is replaced
        assert grapheme(*words, "--overwrite", *wrong).exit_code > 0
    bad = tmp_path / "bad.tsv"
    bad.write_text("only one column\n")
    assert grapheme("train", bad, *words[2:], "--overwrite").exit_code == 1
    assert contents(tmp_path / "model") == before
    assert grapheme(*words, "--overwrite").exit_code == 0
    assert contents(tmp_path / "model")["model.safetensors"] != before["model.safetensors"]


def test_a_file_in_the_place_of_the_folder_is_refused(grapheme, refused, numbers):
    refused(grapheme("train", numbers, "--out", numbers), 1, "is a file: name a folder (--out)")


def test_a_full_disk_leaves_the_old_model_as_it_was(process, numbers, tiny, model, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    before = contents(tmp_path / "model")

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    words = ["train", numbers, "--config", tiny, "--out", tmp_path / "model", "--overwrite", "--seed", 9]
    running = process(*words, preexec_fn=small_disk)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 1, told.decode()
    assert b"Traceback" not in told
    assert b"cannot be written (File too large): make room; a model that was there is as it was" in told
    after = contents(tmp_path / "model")
    assert {name: after[name] for name in ("model.safetensors", "config.json", "README.md")} == {
        name: before[name] for name in ("model.safetensors", "config.json", "README.md")
    }


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_folder_that_cannot_be_written_is_told_of_before_training(
    grapheme, refused, numbers, tiny, tmp_path, monkeypatch, number
):
    def refuse(*_, **__):
        raise OSError(number, "no")

    monkeypatch.setattr("grapheme_nn.folder_lock.TemporaryFile", refuse)
    monkeypatch.setattr("grapheme_nn.training.Trainer", None)  # is not asked for
    way_out = "make room" if number == errno.ENOSPC else "name a folder that can be written with --out"
    words = ["train", numbers, "--config", tiny, "--out", tmp_path / "model"]
    refused(grapheme(*words), 1, f"model cannot be written (no): {way_out}")


@pytest.mark.parametrize(
    ("number", "code", "after"),
    [(signal.SIGINT, 130, b"epoch 2/"), (signal.SIGTERM, 143, b"epoch 2/"), (signal.SIGINT, 130, b"held out")],
)
def test_ctrl_c_and_sigterm_say_how_to_resume_and_resuming_works(
    process, grapheme, refused, numbers, tiny, tmp_path, number, code, after
):
    words = ["train", numbers, "--config", tiny, "--epochs", 400, "--out", tmp_path / "model"]
    running = process(*words)
    for line in running.stderr:
        if after in line:
            break
    while not (tmp_path / "model" / ".lock").exists():  # only then signals are heard
        sleep(0.01)
    running.send_signal(number)
    _, told = running.communicate(timeout=60)
    assert running.returncode == code, told.decode()
    assert b"Traceback" not in told
    assert b"--resume" in told
    assert (tmp_path / "model" / "checkpoint.safetensors").exists()
    refused(grapheme(*words), 1, "holds a training that was stopped: continue it (--resume")
    refused(grapheme(*words, "--seed", 3, "--resume"), 1, "was made with other seed")
    refused(grapheme(*words, "--epochs", 3, "--resume"), 1, "was made with other epochs")
    again = process(*words, "--resume")
    first = next(line for line in again.stderr if line.startswith(b"epoch "))
    again.kill()
    again.communicate()
    assert (b"epoch 1/" in first) == (after == b"held out")


def test_a_second_training_into_the_same_folder_is_refused(process, grapheme, refused, numbers, tiny, tmp_path):
    words = ["train", numbers, "--config", tiny, "--out", tmp_path / "model"]
    running = process(*words, "--epochs", 4000)
    for line in running.stderr:
        if b"epoch 1/" in line:
            break
    refused(grapheme(*words, "--overwrite"), 1, "another training is writing into", "--out")
    assert grapheme("predict", tmp_path / "model", given="12\n").exit_code == 0
    running.kill()
    running.communicate()
    assert grapheme(*words, "--overwrite").exit_code == 0  # what was killed holds nothing


@pytest.mark.parametrize(
    ("device", "code", "says"),
    [
        ("abacus", 2, "--device abacus is no device"),
        ("cuda:99", 1, "--device cuda:99 is not there: this machine has cpu"),
    ],
)
def test_a_device_that_is_not_there_is_refused(grapheme, refused, numbers, tmp_path, device, code, says):
    refused(grapheme("train", numbers, "--device", device, "--out", tmp_path / "model"), code, says)
    assert not (tmp_path / "model").exists()


def test_a_device_is_chosen_by_name(grapheme, numbers, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "")  # is put back afterwards
    words = ["--config", tiny, "--device", "cpu", "--out", tmp_path / "model"]
    assert grapheme("train", numbers, *words).exit_code == 0
    assert os.environ["ACCELERATE_TORCH_DEVICE"] == "cpu"


def test_resuming_without_a_checkpoint_does_not_replace_a_model(grapheme, refused, numbers, tiny, tmp_path, model):
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "checkpoint.safetensors").unlink(missing_ok=True)
    before = contents(tmp_path / "model")
    words = ["--config", tiny, "--out", tmp_path / "model", "--resume"]
    refused(grapheme("train", numbers, *words), 1, "has ended (all epochs are done), so there is nothing to resume")
    assert contents(tmp_path / "model") == before


def test_the_permissions_of_all_files_are_those_that_the_user_wants(grapheme, numbers, tiny, tmp_path):
    before = os.umask(0o027)
    try:
        assert grapheme("train", numbers, "--config", tiny, "--out", tmp_path / "model").exit_code == 0
    finally:
        os.umask(before)
    assert {oct(file.stat().st_mode & 0o777) for file in (tmp_path / "model").iterdir()} == {"0o640"}


def test_what_was_found_by_looking_and_what_teaches_nothing_is_told(grapheme, tiny, tmp_path):
    rows = [f"{word}\t{' '.join(word)}" for word in ("abba", "baab", "abab", "aabb") * 10]
    (tmp_path / "spelled.tsv").write_text("\n".join([*rows, "a\t" + "a b " * 40 + "a"]) + "\n")
    words = ["--config", tiny, "--out", tmp_path / "model", "--epochs", 1]
    result = grapheme("train", tmp_path / "spelled.tsv", "--dev", tmp_path / "spelled.tsv", *words)
    assert "targets are symbols between spaces: target unit symbol\n" in result.stderr
    assert settings(tmp_path / "model")["target_unit"] == "symbol"


@pytest.mark.parametrize("terminal", ["", "1"])
def test_what_is_to_be_known_at_once_is_told_with_the_lines_or_above_the_bar(capsys, monkeypatch, terminal):
    monkeypatch.setenv("FORCE_COLOR", terminal)
    with Report() as report:
        report(Progress(2, 9, 7, 7, 0.25, 1.5, 0.5, 100.0, 60.0, notes=("warning: [all] collapsed",)))
    told = capsys.readouterr().err
    assert "warning: [all] collapsed\n" in told.replace("\r", "")
    assert "epoch 2/9" in told


def test_pairs_in_another_normalization_form_are_judged_as_the_same_pairs(grapheme, tiny, tmp_path):
    rows = "".join(f"{word}\t{word}é\n" for word in ("éa", "bé", "éé", "aé", "ba") * 8)
    for form in ("NFC", "NFD"):
        (tmp_path / f"{form}.tsv").write_text(normalize(form, rows))
    grapheme(
        "train", tmp_path / "NFC.tsv", "--dev", tmp_path / "NFC.tsv", "--config", tiny, "--out", tmp_path / "model"
    )
    one, other = (grapheme("evaluate", tmp_path / "model", tmp_path / f"{form}.tsv") for form in ("NFC", "NFD"))
    assert one.exit_code == 0
    assert one.stdout == other.stdout


def test_a_model_says_which_file_it_was_made_from(grapheme, numbers, model):
    saved = json.loads((model / "config.json").read_text())["data"]
    assert saved["files"] == {"numbers.tsv": sha256(numbers.read_bytes()).hexdigest()}
    assert (saved["pairs"], saved["dev_pairs"]) == (54, 6)
    told = grapheme("info", model).stdout
    for words in ("numbers.tsv", saved["sha256"], __version__, "all epochs are done"):
        assert words in told


def test_resuming_nothing_begins(grapheme, numbers, tiny, tmp_path):
    result = grapheme("train", numbers, "--config", tiny, "--out", tmp_path / "new", "--resume")
    assert result.exit_code == 0
    assert "epoch 1/2" in result.stderr


def test_a_run_that_learns_nothing_says_so_and_ends_with_exit_code_1(grapheme, refused, tiny, tmp_path):
    (tmp_path / "same.tsv").write_text("".join(f"{number}\tz\n" for number in range(100, 140)))
    (tmp_path / "dev.tsv").write_text("".join(f"{number}\t{number}{number}\n" for number in range(20)))
    out = tmp_path / "model"
    result = grapheme("train", tmp_path / "same.tsv", "--dev", tmp_path / "dev.tsv", "--config", tiny, "--out", out)
    refused(
        result,
        1,
        "outputs have collapsed",
        "nothing came out right: not one of 20 dev pairs in 2 epochs (all epochs are done); look at the pairs, or give "
        "it more epochs (--epochs)",
    )
    assert "use it" not in result.stderr
    assert (out / "model.safetensors").is_file()  # to be looked at all the same


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--epochs", 1], "in 1 epoch (all epochs are done); look at the pairs, or give it more epochs (--epochs)"),
        (
            ["--minutes", 1e-9],
            "in 1 epoch (the time limit of 1e-09 min is reached); look at the pairs, or give it more minutes (--minutes)",
        ),
    ],
)
def test_where_nothing_is_right_no_use_is_advertised_and_the_advice_fits(grapheme, numbers, tmp_path, options, says):
    write_pairs(
        [Pair(pair.input, f"{pair.input}{pair.input[::-1]}x") for pair in read_pairs(numbers)], tmp_path / "a.tsv"
    )
    result = grapheme("train", tmp_path / "a.tsv", "--out", tmp_path / "model", "--learning-rate", 1e-9, *options)
    assert (
        f"nothing came out right: not one of 6 dev pairs {says}; the model is in {tmp_path / 'model'}" in result.stderr
    )
    assert result.exit_code == ("outputs have collapsed" in result.stderr)
    assert "use it" not in result.stderr
    assert "dev exact match 0.00% in epoch" not in result.stderr


def test_scores_of_a_model_that_is_nearly_always_wrong_are_low(grapheme, tiny, tmp_path):
    """What `structural` makes of a short output is no probability: it is some 0.3 here before it is scaled."""
    words = ["".join(word) for word in product("abcdefg", repeat=3)][:300]
    write_pairs([Pair(word, "tuvwxyz"[sum(map(ord, word)) % 7]) for word in words], tmp_path / "short.tsv")
    out = tmp_path / "model"
    grapheme("train", tmp_path / "short.tsv", "--loss", "structural", "--config", tiny, "--out", out)
    found = [
        line.split("\t") for line in grapheme("predict", out, tmp_path / "short.tsv", "--scores").stdout.splitlines()
    ]
    assert len(found) == 300
    assert max(float(score) for _, _, score, _ in found) < 0.1


def test_pairs_come_from_the_standard_input(grapheme, model, numbers, tiny, tmp_path):
    words = ["--config", tiny, "--out", tmp_path / "model"]
    result = grapheme("train", "-", *words, given=numbers.read_bytes())
    assert result.exit_code == 0, result.output
    assert "the standard input: 60 pairs, such as" in result.stderr
    assert contents(tmp_path / "model")["model.safetensors"] == contents(model)["model.safetensors"]
    assert json.loads((tmp_path / "model" / "config.json").read_text())["data"]["files"] == {"the standard input": ""}
    result = grapheme("train", numbers, "--dev", "-", *words, "--overwrite", given=numbers.read_bytes())
    assert f"warning: 60 of 60 pairs of the standard input are in {numbers} too" in result.stderr


def test_losses_and_morphs_are_chosen_by_name(grapheme, numbers, tiny, tmp_path):
    words = ["--config", tiny, "--loss", "structural", "--morph", "merge, lift,split", "--out", tmp_path / "model"]
    result = grapheme("train", numbers, *words)
    assert result.exit_code in (0, 1), result.output  # two epochs may teach nothing
    saved = settings(tmp_path / "model")
    assert (saved["loss"], saved["morphs"]) == ("structural", ["merge", "lift", "split"])


@pytest.mark.parametrize(
    ("given", "says"), [("-n", "printf '%s\\n' -n |"), ("a\\tb", "printf '%s\\n' 'a\\tb' |"), ("ab", "echo ab |")]
)
def test_the_command_that_tries_a_model_gives_the_input_as_it_is(given, says):
    assert use([Pair(given, "x")], Path("m")).startswith(says)
    assert use([Pair("0%d", "x", ("V", "PST"))], Path("m")).startswith("printf '%s\\t%s\\n' 0%d 'V;PST' |")


def test_resuming_what_is_not_there_is_said(grapheme, numbers, tiny, tmp_path):
    result = grapheme("train", numbers, "--config", tiny, "--out", tmp_path / "new", "--resume")
    assert result.exit_code == 0
    assert f"there is nothing to resume in {tmp_path / 'new'}: training begins" in result.stderr
