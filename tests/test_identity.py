import hashlib
import os

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fca.identity import canonical, file_sha256, fingerprint


def frame(**columns):
    base = {"image_id": ["b", "a"], "label": ["dog", "cat"], "split": ["test", "train"]}
    return pd.DataFrame({**base, **columns})


def test_fingerprint_keeps_its_golden_values():
    assert fingerprint(frame()) == "5596f1fcc15a"
    assert fingerprint(frame(), "digits 1") == "049c50cc3768"
    assert fingerprint(frame(bytes=[10, 20])) == "8cb5bb58fd24"


def test_fingerprint_is_sha256_of_the_documented_text():
    text = "a\x1f20\x1fcat\x1ftrain\x1eb\x1f10\x1fdog\x1ftest\x1ev1"
    assert fingerprint(frame(bytes=[10, 20]), "v1") == hashlib.sha256(text.encode()).hexdigest()[:12]


@settings(max_examples=30)
@given(st.permutations(range(6)))
def test_fingerprint_does_not_depend_on_the_order_of_lines(order):
    items = pd.DataFrame({"image_id": list("abcdef"), "label": list("xyxyxy"), "split": "test", "bytes": range(6)})
    assert fingerprint(items.iloc[order]) == fingerprint(items)


@pytest.mark.parametrize("column", ["image_id", "label", "split", "bytes"])
def test_fingerprint_changes_with_every_column_it_reads(column):
    items = frame(bytes=[10, 20])
    changed = items.assign(**{column: [30, 20] if column == "bytes" else ["other", items[column][1]]})
    assert fingerprint(changed) != fingerprint(items)


def test_fingerprint_does_not_depend_on_annotations():
    assert fingerprint(frame(pose=["left", "right"])) == fingerprint(frame())


def test_fingerprint_tells_apart_what_a_plain_join_would_not():
    assert fingerprint(frame(label=["do", "cat"], split=["gtest", "train"])) != fingerprint(frame())


def test_file_sha256_is_that_of_the_content(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"abc")
    assert file_sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_sha256(str(path)) == file_sha256(path)


def test_file_sha256_sees_a_changed_file_of_the_same_size(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"abc")
    before = file_sha256(path)
    path.write_bytes(b"abd")
    os.utime(path, ns=(0, 12345))
    assert file_sha256(path) == hashlib.sha256(b"abd").hexdigest() != before


def test_settled_drops_a_later_key_only_while_it_has_its_old_default(monkeypatch):
    monkeypatch.setattr("fca.identity.ADDED_LATER", {"recipe": {"ema": 0.0, "warmup": None}})
    assert canonical("recipe", {"lr": 0.1, "ema": 0.0, "warmup": None}) == {"lr": 0.1}
    assert canonical("recipe", {"lr": 0.1, "ema": 0.9, "warmup": 5}) == {"lr": 0.1, "ema": 0.9, "warmup": 5}
    assert canonical("model", {"ema": 0.0}) == {"ema": 0.0}
