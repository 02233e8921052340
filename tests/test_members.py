"""Several members are trained, stop and go on together, and are left as an ensemble or as one model of their votes."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from multiprocessing import active_children
from random import Random
from time import sleep
from types import SimpleNamespace

import pytest

from grapheme_nn import Ensemble, GraphTransformNet, TrainConfig, load, train, train_members
from grapheme_nn.calibration import Calibration, fit_calibration
from grapheme_nn.data import Pair, generate
from grapheme_nn.distil import DECIDED
from grapheme_nn.folder_lock import refuse_locked
from grapheme_nn.model_folder import ModelError
from grapheme_nn.side_by_side import Job, MemberDied

TINY = TrainConfig(width=32, hidden=16, heads=2, layers=1, batch_size=16, learning_rate=5e-3, patience=0, epochs=2)


def words(count: int, seed: int = 0) -> list[str]:
    random = Random(seed)
    return ["".join(random.choices("abcdefgh", k=random.randint(3, 6))) for _ in range(count)]


PAIRS = [Pair(word, word.upper()) for word in dict.fromkeys(words(160))]
PAIRS, DEV = PAIRS[:90], PAIRS[90:130]


class Stop(Exception):
    pass


def contents(folder):
    """All files below a folder, by name, but for locks and what tells of time."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.name not in (".lock", "metrics.jsonl"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three members that vote, what was told meanwhile, and what came of it."""
    out, told = tmp_path_factory.mktemp("members") / "out", []
    config, files = replace(TINY, seed=7), {"a.tsv": "0" * 64}
    result = train_members(PAIRS, DEV, config, out, members=3, jobs=1, progress=told.append, files=files)
    return out, told, result


def test_members_differ_in_seed_and_loss_and_vote_from_one_folder(trained):
    out, _, result = trained
    settings = [config_of(out / "members" / name)["training"] for name in "123"]
    assert [(each["seed"], each["loss"]) for each in settings] == [(7000, "path"), (7001, "monotone"), (7002, "path")]
    assert sorted(file.name for file in out.iterdir()) == [".lock", "README.md", "config.json", "members"]
    assert sorted(file.name for file in (out / "members").iterdir()) == ["1", "2", "3"]
    ensemble = load(out)
    assert isinstance(ensemble, Ensemble)
    outputs = ensemble.transform([pair.input for pair in DEV])
    right = sum(output == pair.target for output, pair in zip(outputs, DEV, strict=True)) / len(DEV)
    assert result.best_dev_exact_match == right > 0.2
    assert result.parameters == sum(weight.numel() for model in ensemble.models for weight in model.parameters())


def test_the_folder_says_what_the_vote_and_each_member_reached(trained):
    out, _, result = trained
    config, card = config_of(out), (out / "README.md").read_text()
    each = [config_of(out / "members" / name)["result"]["best_dev_exact_match"] for name in "123"]
    assert config["members"] == ["members/1", "members/2", "members/3"]
    assert config["result"]["best_dev_exact_match"] == result.best_dev_exact_match
    assert config["result"]["members"] == each == list(result.members)
    assert config["data"]["pairs"] == 90
    assert config["data"]["files"] == {"a.tsv": "0" * 64}
    assert "by the vote of 3 models" in card
    assert f"{result.best_dev_exact_match:.2%} of 40 dev pairs are exactly right" in card
    assert f"of each model by itself, {', '.join(f'{share:.2%}' for share in each)}" in card


def test_scores_of_the_vote_are_fitted_on_dev(trained):
    out, _, result = trained
    assert result.scores_fitted
    ensemble = load(out)
    plain = Ensemble(ensemble.models, Calibration())
    outputs, scores = plain.transform([pair.input for pair in DEV], return_scores=True)
    wanted = fit_calibration(scores, [made == pair.target for made, pair in zip(outputs, DEV, strict=True)])
    assert ensemble.calibration == pytest.approx(wanted, rel=1e-6)


def test_progress_says_which_member_it_is_of(trained):
    _, told, _ = trained
    assert [now.member for now in told if now.step == now.steps] == [f"member {k} of 3" for k in (1, 1, 2, 2, 3, 3)]


def test_a_loss_that_is_chosen_is_that_of_all_and_graphs_have_their_own(tmp_path):
    train_members(PAIRS, DEV, replace(TINY, epochs=1, loss="ctc"), tmp_path / "ctc", members=2, jobs=1)
    graphs = generate("derivative", 60, seed=1)
    train_members(graphs[:50], graphs[50:], replace(TINY, epochs=1), tmp_path / "graphs", members=2, jobs=1)
    losses = [config_of(tmp_path / name / "members" / "1")["training"]["loss"] for name in ("ctc", "graphs")]
    assert losses == ["ctc", "structural"]
    assert load(tmp_path / "graphs").transform([graphs[0].input])[0].directed


def test_members_in_processes_are_the_same_and_notes_that_all_have_are_told_once(tmp_path):
    pairs, dev = ([pair._replace(target=f"{pair.target}e\u0301") for pair in some] for some in (PAIRS, DEV))
    told = []
    for jobs in (1, 2):
        train_members(
            pairs, dev, replace(TINY, epochs=1), tmp_path / str(jobs), members=2, jobs=jobs, progress=told.append
        )
    one, two = (contents(tmp_path / name) for name in "12")
    assert one == two
    assert one["members/1/model.safetensors"] != one["members/2/model.safetensors"]
    assert [note for now in told for note in now.notes if "in NFD" in note] == [
        "targets are in NFD: target normalization NFD"
    ] * 2
    assert {now.member for now in told} == {"member 1 of 2", "member 2 of 2"}


def stopped(out, at, jobs=1, **how):
    """Train until `at` says of a progress that it is enough."""

    def stop(now):
        if at(now):
            raise Stop

    with pytest.raises(Stop):
        train_members(PAIRS, DEV, TINY, out, members=3, jobs=jobs, progress=stop, **how)


def test_what_was_stopped_goes_on_with_those_that_had_ended_kept(tmp_path):
    stopped(tmp_path / "stopped", lambda now: now.member == "member 2 of 3" and now.step == 3)
    assert not (tmp_path / "stopped" / "config.json").exists()
    with pytest.raises(ModelError, match=r"holds a training that was stopped: continue it \(--resume"):
        train_members(PAIRS, DEV, TINY, tmp_path / "stopped", members=3)
    with pytest.raises(ModelError, match=r"holds a training of members that was stopped: continue it by --members"):
        train(PAIRS, DEV, TINY, tmp_path / "stopped", resume=True)
    for changed, names in (({"members": 4}, "members"), ({"distil": True}, "distil"), ({"words": ["a"]}, "distil, w")):
        with pytest.raises(ModelError, match=f"was begun with other {names}"):
            train_members(PAIRS, DEV, TINY, tmp_path / "stopped", resume=True, **({"members": 3} | changed))
    with pytest.raises(ModelError, match="was begun with other ema, pairs: give the same to continue it"):
        train_members(PAIRS[1:], DEV, replace(TINY, ema=0.5), tmp_path / "stopped", members=3, resume=True)
    told = []
    train_members(PAIRS, DEV, TINY, tmp_path / "stopped", members=3, jobs=1, resume=True, progress=told.append)
    assert (told[0].member, told[0].epoch, told[0].step) == ("member 2 of 3", 1, 3)
    train_members(PAIRS, DEV, TINY, tmp_path / "whole", members=3, jobs=1)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")
    with pytest.raises(ModelError, match=r"has ended \(all 3 members are trained\), so there is nothing to resume"):
        train_members(PAIRS, DEV, TINY, tmp_path / "whole", members=3, resume=True)


def test_members_side_by_side_all_save_their_checkpoints_when_one_is_stopped(tmp_path):
    begun = set()

    def both(now):
        begun.add(now.member)
        return len(begun) == 2

    stopped(tmp_path, both, jobs=2)
    assert active_children() == []
    for name in "12":
        assert (tmp_path / "unfinished" / name / "checkpoint.safetensors").exists()


def test_a_member_that_is_killed_ends_the_whole_with_one_sentence(tmp_path):
    def kill(now):
        for child in active_children():
            os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(MemberDied, match=r"^member [12] of 2 was ended by SIGKILL, .* \(--resume, resume=True\)$"):
        train_members(PAIRS, DEV, replace(TINY, epochs=200), tmp_path, members=2, jobs=2, progress=kill)
    assert active_children() == []


ORPHANS = """
import os, signal, sys
from grapheme_nn import TrainConfig, train_members
from grapheme_nn.data import Pair

begun = set()

def kill(now):
    begun.add(now.member)
    if len(begun) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    config = TrainConfig(width=32, hidden=16, heads=2, layers=1, epochs=100_000, patience=0)
    pairs = [Pair(word, word.upper()) for word in sys.argv[2:]]
    train_members(pairs, [Pair("a", "never right")], config, sys.argv[1], members=2, jobs=2, progress=kill)
"""


def test_members_whose_parent_is_killed_save_their_checkpoints_and_end(tmp_path):
    (tmp_path / "main.py").write_text(ORPHANS)
    command = [sys.executable, str(tmp_path / "main.py"), str(tmp_path / "out"), *words(60)]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    for name in "12":
        member = tmp_path / "out" / "unfinished" / name
        for _ in range(300):
            try:
                refuse_locked(member)
                break
            except ModelError:  # it is still being trained
                sleep(0.1)
        refuse_locked(member)
        assert (member / "checkpoint.safetensors").exists()
    assert run.stderr == ""


MINE = """
from grapheme_nn import OBJECTIVES
from grapheme_nn.objective.monotone import Monotone

@OBJECTIVES.register("mine")
class Mine(Monotone):
    pass
"""
OWN = """
import sys, mine
from grapheme_nn import TrainConfig, train_members
from grapheme_nn.data import Pair

config = TrainConfig(width=16, hidden=8, heads=2, layers=1, epochs=1, loss="mine")
train_members([Pair(word, word) for word in sys.argv[1:]], [], config, "out", members=2, jobs=2)
"""


def test_a_loss_of_ones_own_is_known_in_processes(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    run = subprocess.run(
        [sys.executable, "-c", OWN, *words(60)], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert config_of(tmp_path / "out" / "members" / "2")["training"]["loss"] == "mine"


def test_an_error_of_a_member_in_a_process_is_raised_as_it_is(tmp_path):
    config = replace(TINY, learning_rate=1e30, clip=1e30)
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        train_members(PAIRS, DEV, config, tmp_path / "out", members=2, jobs=2)


def test_settings_that_do_not_work_leave_nothing(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="heads"):
        train_members(PAIRS, DEV, replace(TINY, heads=3), tmp_path / "out", members=2)
    assert not (tmp_path / "out").exists()
    for members in (1, 2.0, True):
        with pytest.raises(ValueError, match="members must be a whole number of at least 2"):
            train_members(PAIRS, DEV, TINY, tmp_path / "out", members=members)
    monkeypatch.setattr("grapheme_nn.members.Accelerator", lambda: SimpleNamespace(num_processes=2))
    with pytest.raises(ValueError, match="start it without accelerate launch"):
        train_members(PAIRS, DEV, TINY, tmp_path / "out", members=2)
    for jobs in (0, 1.5):
        with pytest.raises(ValueError, match="jobs must be a whole number of at least 1"):
            train_members(PAIRS, DEV, TINY, tmp_path / "out", members=2, jobs=jobs)
    with pytest.raises(ValueError, match="seed must be below 9,223,372,036,854,775 where there are members"):
        train_members(PAIRS, DEV, replace(TINY, seed=2**60), tmp_path / "out", members=2)


def test_nothing_is_lost_without_a_wish_whatever_is_there_and_whatever_comes(tmp_path):
    short = replace(TINY, epochs=1)
    how = {"members": 2, "jobs": 1}
    train(PAIRS, DEV, short, tmp_path)
    one = contents(tmp_path)
    with pytest.raises(ModelError, match="holds a model already"):
        train_members(PAIRS, DEV, short, tmp_path, **how)
    stopped(tmp_path, lambda now: now.member == "member 3 of 3", overwrite=True)
    assert {name: contents(tmp_path)[name] for name in one} == one  # until all members are there, the old model is
    train_members(PAIRS, DEV, short, tmp_path, overwrite=True, **how)
    both = contents(tmp_path)
    assert "model.safetensors" not in both
    assert len(load(tmp_path).models) == 2
    with pytest.raises(ModelError, match="holds a model already"):
        train(PAIRS, DEV, short, tmp_path)
    with pytest.raises(ModelError, match="holds a model already"):
        train_members(PAIRS, DEV, short, tmp_path, **how)
    assert contents(tmp_path) == both
    train(PAIRS, DEV, short, tmp_path, overwrite=True)
    assert contents(tmp_path) == one


def test_a_plan_that_is_damaged_is_named(tmp_path):
    stopped(tmp_path, lambda now: now.step == 3)
    for content in ("{", "[]"):
        (tmp_path / "unfinished" / "plan.json").write_text(content)
        with pytest.raises(ModelError, match=r"plan\.json is damaged \(.*\): train without resuming"):
            train_members(PAIRS, DEV, TINY, tmp_path, members=3, resume=True)
    assert (tmp_path / "unfinished" / "1" / "checkpoint.safetensors").exists()


def test_a_training_of_one_that_was_stopped_is_not_taken_for_one_of_members(tmp_path):
    def stop(now):
        raise Stop

    with pytest.raises(Stop):
        train(PAIRS, DEV, TINY, tmp_path, progress=stop)
    with pytest.raises(ModelError, match="of one model that was stopped: continue it without --members"):
        train_members(PAIRS, DEV, TINY, tmp_path, members=2, resume=True)
    with pytest.raises(ModelError, match="holds a training that was stopped"):
        train_members(PAIRS, DEV, TINY, tmp_path, members=2)


@pytest.mark.parametrize("name", ["members", "unfinished"])
def test_folders_of_others_are_not_replaced_without_a_wish(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine").touch()
    with pytest.raises(ModelError, match=f"has a {name} that would be replaced"):
        train_members(PAIRS, DEV, TINY, tmp_path, members=2)
    assert (tmp_path / name / "mine").exists()


def test_a_time_limit_is_shared_by_trainings_that_follow_each_other(tmp_path):
    config = replace(TINY, epochs=1, time_limit=6.0)
    train_members(PAIRS, DEV, config, tmp_path, members=3, jobs=1)
    assert [config_of(tmp_path / "members" / name)["training"]["time_limit"] for name in "123"] == [2.0] * 3


def test_votes_on_new_inputs_teach_one_model_which_is_left(tmp_path, monkeypatch):
    pairs = [
        Pair(word, word.upper() + "?!"[at % 2], ("V", "N")[at % 2 : at % 2 + 1]) for at, word in enumerate(words(90))
    ]
    seen = {}
    run = Job.run

    def watch(self, progress):
        seen[self.name] = self
        return run(self, progress)

    monkeypatch.setattr(Job, "run", watch)
    more = [Pair("gggg", "", ("V",)), Pair("gggg", "", ("V",)), Pair(pairs[0].input, "", pairs[0].features)]
    told = []
    how = {"members": 2, "jobs": 1, "words": more, "progress": told.append}
    result = train_members(pairs[:70], pairs[70:], replace(TINY, epochs=6), tmp_path, **how)
    job = seen["distilled model"]
    assert job.pairs[:70] == pairs[:70]
    taught = job.pairs[70:]
    known = {(pair.input, pair.features) for pair in pairs}
    new = [(pair.input, pair.features) for pair in taught]
    assert 70 < len(taught) <= 4 * 70 + 1
    assert new.count(("gggg", ("V",))) == 1
    assert len(set(new)) == len(new)
    assert not known & set(new)  # neither what is learned from, nor what is judged by
    assert all(pair.target for pair in taught)
    assert seen.keys() == {"member 1 of 2", "member 2 of 2", "distilled model"}
    assert all(getattr(job.config, name) is not None for name in DECIDED)
    assert isinstance(load(tmp_path), GraphTransformNet)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        ".lock", "README.md", "config.json", "metrics.jsonl", "model.safetensors"
    ]  # fmt: skip
    assert (
        f"distilled from 2 models, which voted on {len(taught):,} other inputs" in (tmp_path / "README.md").read_text()
    )
    data = config_of(tmp_path)["data"]
    assert (data["pairs"], data["voted"], data["distilled_from"]) == (70, len(taught), 2)
    assert config_of(tmp_path)["result"]["best_dev_exact_match"] == result.best_dev_exact_match
    assert any("2 members vote on" in note for now in told for note in now.notes)


def test_the_taught_pairs_are_the_votes(tmp_path):
    """Members are removed in the end: those of the same training without distilling are the same."""
    stopped(
        tmp_path / "stopped",
        lambda now: now.member == "distilled model" and now.step == 9 < now.steps < 99,
        distil=True,
    )
    votes = json.loads((tmp_path / "stopped" / "unfinished" / "votes.json").read_text())
    train_members(PAIRS, DEV, TINY, tmp_path / "voting", members=3, jobs=1)
    made = load(tmp_path / "voting").transform([given for given, _, _ in votes])
    assert made == [output for _, output, _ in votes]
    how = {"members": 3, "jobs": 1, "distil": True}
    told = []
    train_members(PAIRS, DEV, TINY, tmp_path / "stopped", resume=True, progress=told.append, **how)
    assert (told[0].member, told[0].epoch, told[0].step) == ("distilled model", 1, 9)
    train_members(PAIRS, DEV, TINY, tmp_path / "whole", **how)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def test_what_the_members_cannot_answer_is_left_out(tmp_path, monkeypatch):
    transform = Ensemble.transform
    monkeypatch.setattr(
        Ensemble,
        "transform",
        lambda *given, **how: ["" if at % 2 else made for at, made in enumerate(transform(*given, **how))],
    )
    train_members(PAIRS, DEV, replace(TINY, epochs=1), tmp_path, members=2, jobs=1, distil=True)
    assert config_of(tmp_path)["data"]["voted"] <= 2 * len(PAIRS)


@pytest.mark.parametrize(
    ("pairs", "more", "says"),
    [
        (generate("derivative", 60, seed=1), [], "only texts can be distilled, but there are graphs"),
        (PAIRS, [generate("derivative", 1, seed=1)[0].input], "only texts can be distilled"),
        ([pair._replace(features=("V",)) for pair in PAIRS], ["abc"], "the words have none: add a column of them"),
    ],
)
def test_what_cannot_be_distilled_is_told_before_anything_is_trained(tmp_path, pairs, more, says):
    with pytest.raises(ValueError, match=says):
        train_members(pairs, [], TINY, tmp_path / "out", members=2, distil=True, words=more)
    assert not (tmp_path / "out").exists()
