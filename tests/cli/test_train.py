"""`grapheme train`, from a file to a folder, and what may go wrong on the way."""

import json
import resource
import shutil
import signal

import pytest

from grapheme_nn.data import Pair, generate, read_pairs, write_pairs


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def settings(folder):
    return json.loads((folder / "config.json").read_text())["training"]


def test_training_says_what_it_does_and_how_to_use_the_model(grapheme, numbers, tiny, tmp_path):
    result = grapheme("train", numbers, "--out", tmp_path / "model", "--config", tiny, "--seed", 5)
    assert result.exit_code == 0
    assert result.stdout == ""
    for words in (
        "numbers.tsv: 60 pairs, such as",
        "6 of the pairs are held out (seed 5)",
        "epoch 1/2  loss",
        "epoch 2/2  loss",
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


def test_settings_out_of_range_are_wrong_use(grapheme, refused, numbers, tmp_path):
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
    assert grapheme(*words, "--overwrite").exit_code == 0
    assert contents(tmp_path / "model")["model.safetensors"] != before["model.safetensors"]


def test_a_file_in_the_place_of_the_folder_is_refused(grapheme, refused, numbers):
    refused(grapheme("train", numbers, "--out", numbers), 1, "is a file: name a folder with --out")


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
    assert b"cannot be written" in told
    after = contents(tmp_path / "model")
    assert {name: after[name] for name in ("model.safetensors", "config.json", "README.md")} == {
        name: before[name] for name in ("model.safetensors", "config.json", "README.md")
    }


def test_ctrl_c_says_how_to_resume_and_resuming_works(process, grapheme, numbers, tiny, tmp_path):
    words = ["train", numbers, "--config", tiny, "--epochs", 40, "--out", tmp_path / "model"]
    running = process(*words)
    for line in running.stderr:
        if b"epoch 2/" in line:
            break
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 130, told.decode()
    assert b"Traceback" not in told
    assert b"--resume" in told
    again = grapheme(*words, "--resume")
    assert again.exit_code == 0, again.output
    assert "epoch 1/" not in again.stderr


def test_resuming_with_other_options_is_refused(grapheme, refused, numbers, tiny, tmp_path, model):
    shutil.copytree(model, tmp_path / "model")
    words = ["--config", tiny, "--seed", 3, "--out", tmp_path / "model", "--resume"]
    refused(grapheme("train", numbers, *words), 1, "train without resuming")


def test_resuming_without_a_checkpoint_does_not_replace_a_model(grapheme, refused, numbers, tiny, tmp_path, model):
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "checkpoint.safetensors").unlink(missing_ok=True)
    before = contents(tmp_path / "model")
    words = ["--config", tiny, "--out", tmp_path / "model", "--resume"]
    refused(grapheme("train", numbers, *words), 1, "there is nothing to resume")
    assert contents(tmp_path / "model") == before


def test_all_files_of_a_model_have_the_same_permissions(model):
    assert len({file.stat().st_mode for file in model.iterdir() if file.is_file()}) == 1


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
        result, 1, "outputs have collapsed", "nothing was learned: not one of 20 dev pairs came out right in 2 epochs"
    )
    assert (out / "model.safetensors").is_file()  # to be looked at all the same


def test_losses_and_morphs_are_chosen_by_name(grapheme, numbers, tiny, tmp_path):
    words = ["--config", tiny, "--loss", "structural", "--morph", "merge, lift,split", "--out", tmp_path / "model"]
    result = grapheme("train", numbers, *words)
    assert result.exit_code in (0, 1), result.output  # two epochs may teach nothing
    saved = settings(tmp_path / "model")
    assert (saved["loss"], saved["morphs"]) == ("structural", ["merge", "lift", "split"])
