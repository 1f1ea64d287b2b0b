"""Wrong command lines: one line that names what was typed and what to type instead, and no text of Hydra's."""

import shlex
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fca.cli import clean, results
from fca.cli.commands import commands
from tests.support.images import write_images
from tests.support.of_studies import parts

RAW = ("Could not", "mismatched input", "viable alternative", "Lexer", "defaults list", "full_key", "Traceback", "EOF")

MEANT = {  # what was typed -> what is to be typed
    "run dataset.root=photos": "dataset=folder dataset.root=photos",
    "run root=photos": "dataset=folder dataset.root=photos",
    "run dataset/root=photos": "dataset=folder dataset.root=photos",
    "run dataset=folder root=photos": "dataset.root=photos",
    "run data_dir=photos dataset=folder": "dataset.root=photos",
    "run photos": "dataset=folder dataset.root=photos",
    "run lr=0.1": "recipe.lr=0.1",
    "run +lr=0.1": "recipe.lr=0.1",
    "run ++lr=0.1": "recipe.lr=0.1",
    "run --lr 0.1": "recipe.lr=0.1",
    "run --lr=0.1": "recipe.lr=0.1",
    "run -m lr=0.1,0.2": "recipe.lr=0.1,0.2",
    "run learning_rate=0.1": "recipe.lr=0.1",
    "run recipe.learning_rate=0.1": "recipe.lr=0.1",
    "run recipe/lr=0.1": "recipe.lr=0.1",
    "run epochs=3": "recipe.epochs=3",
    "run recipe.epoch=3": "recipe.epochs=3",
    "run batch_size=8": "recipe.batch_size=8",
    "run image_size=64": "model.input_size=64",
    "run pretrained=true": "model.weights=pretrained",
    "run model=hog model.pretrained=true": "model.weights=pretrained",
    "run weights=x.pt": "model.weights=x.pt",
    "run recipe.optimizer=sgd": "recipe.optimiser=sgd",
    "run num_workers=4": "machine.workers=4",
    "run device=cuda": "machine.accelerator=gpu",
    "run ncl=5": "subset.ncl=5",
    "run num_classes=5": "subset.ncl=5",
    "run classes=[0,1]": "subset.classes=[0,1]",
    "run recipe.augment=light": "recipe/augment=light",
    "run -m recipe.augment=light,none": "recipe/augment=light,none",
    "run hydra.launcher=joblib": "hydra/launcher=joblib",
    "run model=resnet-18": "model=resnet18",
    "run model=ResNet18": "model=resnet18",
    "run -m model=resnet-18,resnet18": "model=resnet18",
    "run modle=resnet18": "model=resnet18",
    "run Model=resnet18": "model=resnet18",
    "run --model resnet18": "model=resnet18",
    "run -model resnet18": "model=resnet18",
    "run dataset=photos": "dataset=folder dataset.root=photos",
    "run model = resnet18": "model=VALUE, without spaces",
    "run resnet18": "model=resnet18",
    "run data=folder": "dataset=folder",
    "run train": "task=train",
    "run augment=light": "recipe/augment=light",
    "run recipe.aug=light": "recipe/augment=light",
    "run dataset.path=photos": "dataset=folder dataset.root=photos",
    "run recipe.lr 0.1": "recipe.lr=VALUE, without spaces",
    "run recipe.lr:0.1": "recipe.lr=0.1",
    "run -lr 0.1": "recipe.lr=0.1",
    "run task.snapshots=[0.5]": "recipe.snapshots=[0.5]",
    "run model.epochs=3": "recipe.epochs=3",
    "run snapshot=0.5": "model=run model.snapshot=0.5",
    "run run=0123456789ab": "model=run model.run_id=0123456789ab",
    "run +recipe.learning_rate=0.1": "recipe.lr=0.1",
    "run 'seed=[0, 1]'": "-m seed=0,1",
    "run recipe.lr=[0.1,0.2]": "-m recipe.lr=0.1,0.2",
    "run -m subset.ncl=2-5": "-m 'subset.ncl=range(2,6)'",
    "run model=[resnet18,vgg16]": "-m model=resnet18,vgg16",
    "run shift=[corruption/fog,clean]": "-m shift=corruption/fog,clean",
    "run model=resnet18,vgg16": "add -m to run each of them, or give one",
    "run 'dataset=folder dataset.root=photos'": "alone: dataset=folder dataset.root=photos",
    "run model=": "give a name, model=NAME",
    "run dataset.val=0.2": "dataset.val.share=...",
    "run task.split=val": "task=predict task.split=val",
    "run task=predict task.spilt=val": "task.split=val",
    "run model.run_id=x": "model=run model.run_id=x",
    "run shift=fog": "shift=corruption/fog",
    "run shift=corruption.fog": "shift=corruption/fog",
    "run experiment=fewclass": "experiment=few_class",
    "run experiment/few_class": "experiment=few_class",
    "run logger=tensorbord": "logger=tensorboard",
    "run model@encodr=hog": "model@encoder=hog",
    "run model@encoder=hgo": "model@encoder=hog",
    "run +dataset=folder": "dataset=folder",
    "run ++dataset=folder": "dataset=folder",
    "run +seed=1": "seed=1",
    "run recipe.optimiser_options.eps=1": "+recipe.optimiser_options.eps=1",
    "run model.kwargs.drop_rate=0.1": "+model.kwargs.drop_rate=0.1",
    "run 'dataset.root=/tmp/été' dataset=folder": """'dataset.root="/tmp/été"'""",
    "analyse few_class": "analysis=few_class",
    "analyse analysis=few-class": "analysis=few_class",
    "report report=fewclass": "report=few_class",
}

for part in parts("hints"):
    MEANT |= part.MEANT

REASONS = {  # what was typed -> part of the reason
    "run 'model=[resnet18'": "model = [resnet18; allowed: a value that Hydra can read (1 [ but 0 ])",
    "run 'model=resnet18]'": "model = resnet18]; allowed: a value that Hydra can read (0 [ but 1 ])",
    "run 'subset.classes={cat'": "(1 { but 0 })",
    "run 'seed=range(3' -m": "(1 ( but 0 ))",
    "run 'dataset.root=\"a b'": 'the quote " is not closed',
    "run model=resnet18,": "a comma has no value beside it",
    "run .lr=1": "the key .lr is not written as keys are",
    "run recipe.=1": "the key recipe. is not written as keys are",
    "run 数据=1": "the key 数据 is not written as keys are",
    "run model=模型": "letters beyond a to z: 模型",
    "run ~dataset.root": "~dataset.root = ; allowed: a key or group with that value that is there",
    "run ~recipe.foo": "~recipe.foo = ; allowed: a key or group with that value that is there",
    "run 'recipe=[1]'": "recipe = [1]; allowed: an option of conf/recipe",
    "run logger=false": "logger = false; allowed: an option of conf/logger",
    "run 'seed=${foo}'": "seed = ${foo}; allowed: a value that can be used (Interpolation key 'foo' not found)",
    "run 'recipe.lr=${recipe.lr}'": "recipe.lr = ${recipe.lr}; allowed: a value that can be used (Recursive",
    "run dataset.val.share=a": "dataset.val.share = a; allowed: a finite number, above 0, below 1",
    "run dataset.val=0.1": "dataset.val = 0.1; allowed: keys with values: share, seed",
    "run recipe.lr.x=1": "key = recipe.lr.x",
    "run plugins=[no_such_module]": "plugins = no_such_module; allowed: modules that Python finds",
    "run sweep.print=3": "sweep.print = 3; allowed: true or false",
}


@pytest.fixture
def refused(fca, tmp_path):
    """The line with which a command refuses the words of a line; nothing was written."""
    write_images(tmp_path / "photos", per_class=2, classes=("ant", "bee"))
    before = sorted(tmp_path.rglob("*"))

    def call(line):
        command, *words = shlex.split(line)
        door = import_module(commands()[command].module)
        code, _, err = fca(*words, door=door)
        assert (code, len(err.splitlines())) == (2, 1), err
        assert err.startswith("error: ")
        assert err.count("; allowed: ") == 1, "no error inside of an error"
        assert err.count("; next: ") == 1
        assert not [text for text in RAW if text in err], err
        assert sorted(tmp_path.rglob("*")) == before
        return err

    return call


@pytest.mark.wide
@pytest.mark.parametrize("line", MEANT)
def test_a_wrong_line_is_answered_with_what_was_meant(refused, line):
    assert MEANT[line] in refused(line).partition("; next: ")[2]


@pytest.mark.parametrize("line", [line for part in parts("hints") for line in part.OF_NO_GROUP])
def test_no_command_is_offered_groups_that_it_does_not_have(refused, line):
    assert refused(line).partition("; next: ")[2] == f"fca {line.split()[0]} --help lists groups and keys\n"


@pytest.mark.parametrize("line", REASONS)
def test_a_line_that_cannot_be_read_or_used_is_answered_with_the_reason(refused, line):
    assert REASONS[line] in refused(line)


@pytest.mark.parametrize("line", ["run --serve", "run serve=true", "run model=zebra", "run dataset=mouse"])
def test_what_looks_like_nothing_here_is_answered_without_a_guess(refused, line):
    assert "did you mean" not in refused(line)


def test_a_path_is_no_folder_of_options(refused):
    with TemporaryDirectory() as elsewhere:  # of letters and digits alone, as names of groups are
        Path(elsewhere, "photos.yaml").touch()
        assert "did you mean" not in refused(f"run {elsewhere}/photos")


@pytest.mark.parametrize(("words", "value"), [(["--model", "resnet18"], "VALUE"), (["--model=resnet18"], "resnet18")])
@pytest.mark.parametrize("command", [results, clean])
def test_a_filter_with_dashes_is_answered_with_the_filter(tmp_path, monkeypatch, capsys, command, words, value):
    (tmp_path / "outputs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert command.main(words) == 2
    assert f"next: filters have no dashes in front: model={value}" in capsys.readouterr().err


def test_the_tables_have_more_than_sixty_lines():
    assert len(MEANT) + len(REASONS) > 60


def test_options_that_look_like_what_was_typed_come_first_and_ten_are_listed(refused):
    allowed = refused("run model=resnet-18").partition("allowed: ")[2].partition("; next")[0]
    names = allowed.partition(" and ")[0].split(", ")
    assert names[0] == "resnet18"
    assert len(names) == 10
    assert allowed.endswith(" more")
