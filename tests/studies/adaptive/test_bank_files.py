"""Files of item banks: written with who they are from, read as numbers and names, refused by name when damaged."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fca.store import Store
from fca.studies.adaptive.commands import bank as door
from fca.studies.irt.ability import Ability
from fca.studies.irt.bank import bank_id, origin_of, read_bank, write_bank
from fca.studies.irt.irt import Irt
from fca.types import FcaError


@pytest.fixture(scope="module")
def responses(tmp_path_factory):
    rng = np.random.default_rng(0)
    right = rng.random((12, 40)) < np.linspace(0.2, 0.95, 12)[:, None]
    file = tmp_path_factory.mktemp("zoo") / "zoo.csv"
    frame = pd.DataFrame(right.astype(int), [f"net{n}" for n in range(12)], [f"img{n}" for n in range(40)])
    frame.rename_axis("subject").to_csv(file)
    return str(file)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, responses):
    """A store with a bank, and its id."""
    store = Store(tmp_path_factory.mktemp("banks") / "outputs")
    ids = {table.name: store.save(table).name for table in Irt(responses=[responses])(store)}
    return store, ids["irt_items"]


@pytest.fixture
def file(saved, tmp_path):
    return write_bank(*saved, tmp_path / "zoo.json", cite="Doe 2026", licence="CC0-1.0")


def test_a_file_has_the_items_who_they_are_from_and_how_well_they_fit(saved, file):
    store, table_id = saved
    content = json.loads(file.read_text())
    assert (content["cite"], content["licence"], content["fitted"]["table"]) == ("Doe 2026", "CC0-1.0", table_id)
    assert {one["subject"] for one in content["subjects"]} == {f"net{n}" for n in range(12)}
    assert len(content["subjects"]) == 12
    assert content["fitted"]["fits"][0]["held_out_nll"] > 0
    assert content["fitted"]["model"] == "2pl"
    assert (content["runs"], content["fingerprints"]) == ([], {})
    pd.testing.assert_frame_equal(read_bank(store, str(file)), read_bank(store, table_id), check_dtype=False)
    assert "zoo.csv" not in json.dumps(content["fitted"]), "no path of ours"


def test_a_file_is_what_its_bytes_are(file, tmp_path):
    copy = tmp_path / "elsewhere" / "renamed.json"
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    assert bank_id(str(copy)) == bank_id(str(file))
    assert len(bank_id(str(file))) == 12
    copy.write_bytes(file.read_bytes() + b"\n")
    assert bank_id(str(copy)) != bank_id(str(file))


def test_a_file_of_a_fit_that_learned_every_scale_names_none(saved, file):
    content = json.loads(file.read_text())
    del content["not_estimable"]
    file.write_text(json.dumps(content))
    pd.testing.assert_frame_equal(read_bank(saved[0], str(file)), read_bank(*saved), check_dtype=False)
    assert origin_of(saved[0], str(file)).not_estimable == {}


def test_new_subjects_are_scored_alike_by_table_and_file(saved, file, responses):
    store, table_id = saved
    both = [Ability(responses=[responses], bank=bank)(store)[0] for bank in (table_id, str(file))]
    pd.testing.assert_frame_equal(both[0].frame, both[1].frame)
    assert both[1].parameters["bank"] == bank_id(str(file))


def _set(**values):
    def damage(path):
        content = json.loads(path.read_text())
        for name, value in values.items():
            if name in content:
                content[name] = value
            else:
                content["items"][name] = value if isinstance(value, list) else [value, *content["items"][name][1:]]
        path.write_text(json.dumps(content))

    return damage


def _without(name):
    def damage(path):
        content = json.loads(path.read_text())
        del content["items"][name]
        path.write_text(json.dumps(content))

    return damage


DAMAGE = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "empty": lambda path: path.write_bytes(b""),
    "pickle": lambda path: path.write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR."),
    "deep": lambda path: path.write_text('{"fca_bank": 1, "items": ' + "[" * 100_000),
    "a list": lambda path: path.write_text("[1]"),
    "format": _set(fca_bank=2),
    "runs": _set(runs=[1]),
    "fingerprints": _set(fingerprints={"zoo": "x"}),
    "no items": _set(items={}),
    "short": _set(item=["a"]),
    "lacks": _without("difficulty"),
    "a text": _set(difficulty="__import__('os')"),
    "missing": _set(difficulty=None),
    "slope": _set(discrimination=0.0),
    "true": _set(discrimination=True),
    "huge": _set(difficulty=10**400),
    "asymptote": _set(feasibility=1.5),
    "model": _set(irt_model="5pl"),
    "name": _set(item=3),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_by_name(saved, file, damage):
    DAMAGE[damage](file)
    with pytest.raises(FcaError, match=r"bank"):
        (read_bank(saved[0], str(file)), origin_of(saved[0], str(file)))


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["fifo", "folder"])
def test_what_is_no_file_is_no_bank(saved, tmp_path, make):
    make(tmp_path / "zoo.json")
    with pytest.raises(FcaError, match=r"zoo.json; allowed: a saved table irt_items: .*; or a file of fca bank"):
        read_bank(saved[0], str(tmp_path / "zoo.json"))


def test_the_command_lists_writes_and_refuses(saved, tmp_path, monkeypatch, capsys):
    store, table_id = saved
    monkeypatch.chdir(tmp_path)
    outputs = ["--outputs", str(store.outputs)]
    assert door.main(outputs) == 0
    assert capsys.readouterr().out == f"{table_id}  zoo: 40 items, 2pl\n"
    assert door.main([table_id, *outputs]) == 0
    name = f"bank-{table_id}.json"
    assert capsys.readouterr().out.startswith(f"{name}: 40 items; identity {bank_id(name)}; use: task.bank={name}")
    for words, told in (
        (["nothere"], f"bank = nothere; allowed: a saved table irt_items: {table_id}"),
        ([table_id, "zoo.pkl"], "file = zoo.pkl; allowed: a name that ends in .json"),
        ([table_id, "--form", "x"], "what fca bank --help lists"),
    ):
        assert door.main([*words, *outputs]) == 2
        assert told in capsys.readouterr().err
    assert door.main(["--outputs", "nowhere"]) == 2


def test_a_bank_whose_other_tables_are_gone_is_not_written(responses, tmp_path):
    store = Store(tmp_path / "outputs")
    [items] = [table for table in Irt(responses=[responses])(store) if table.name == "irt_items"]
    table_id = store.save(items).name
    with pytest.raises(FcaError, match=r"table irt_abilities of this bank = missing; .*fca analyse analysis=irt"):
        write_bank(store, table_id, tmp_path / "zoo.json")
    assert not (tmp_path / "zoo.json").exists()
