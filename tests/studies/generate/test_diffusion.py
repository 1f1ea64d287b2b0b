"""diffusers with a tiny Stable Diffusion of random weights, built here: no network."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fca.studies.generate.drawing import generate
from fca.studies.generate.folder import Folder
from fca.studies.generate.generators.diffusion import Diffusion, _available_devices, _dtype, _pipeline
from fca.studies.generate.protocols import Batched, Refused, Request
from fca.types import FcaError
from tests.studies.generate.support.painter import NINE, plan

REQUEST = Request("car", "car", "view", "easy", 1, 0, 5, "a photo of a car")


def tiny(**more):
    return Diffusion(**{"model": "nowhere", "steps": 2, "guidance": 5.0, "size": 32, "dtype": "float32", **more})


@pytest.fixture(scope="module", autouse=True)
def offline():
    """Nobody asks Hugging Face, and the loaded pipeline goes with the tests."""
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    yield
    constants.HF_HUB_OFFLINE = before
    _pipeline.cache_clear()


@pytest.mark.slow
def test_a_seed_gives_its_image_also_after_loading_again_and_after_others(model):
    made = tiny(model=str(model))
    first = made.draw(REQUEST)
    other = made.draw(replace(REQUEST, index=1, seed=6))
    assert first.image.shape == (32, 32, 3)
    assert first.image.std() > 1
    assert (first.image != other.image).any()
    _pipeline.cache_clear()
    assert np.array_equal(made.draw(REQUEST).image, first.image)
    device = made.places()[0]
    assert first.facts == {"device": device, "dtype": "float32"}
    expected = r"tiny-diffusion [0-9a-f]{12}, 2 steps, guidance 5.0, size 32, float32, diffusers \d.*"
    assert re.fullmatch(expected, made.version())
    assert isinstance(made, Batched)
    assert (made.prompted, made.parallel, made.price()) == (True, False, 0.0)


@pytest.mark.slow
def test_an_image_is_the_same_whatever_is_drawn_beside_it(model):
    made = tiny(model=str(model))
    requests = [replace(REQUEST, index=at, seed=7 * at, prompt=words) for at, words in enumerate(["a", "zz", "car"])]
    alone = [made.draw(request).image for request in requests]
    assert (alone[0] != alone[1]).mean() > 0.5
    for order in ([0, 1, 2], [2, 0], [1, 1, 1, 2]):
        for at, drawn in zip(order, made.draw_batch([requests[at] for at in order]), strict=True):
            # matrix products of another shape round in another order: at most the last of 256 grey levels
            assert np.abs(drawn.image.astype(int) - alone[at]).max() <= 1


@pytest.mark.slow
def test_half_precision_draws_nearly_the_same_image_and_the_facts_name_it(model):
    whole = tiny(model=str(model)).draw(REQUEST).image.astype(int)
    half = tiny(model=str(model), dtype="bfloat16").draw(REQUEST)
    assert half.facts["dtype"] == "bfloat16"
    assert 0 < np.abs(half.image - whole).mean() < 6  # 8 bits of mantissa
    assert tiny(dtype="auto").version() == tiny(dtype="auto", batch_size=4, devices=["cuda:1"]).version()


@pytest.mark.parametrize(
    ("gpus", "bfloat16", "expected"),
    [
        (0, False, [("cpu", "float32")]),
        (1, False, [("cuda:0", "float16")]),
        (2, True, [("cuda:0", "bfloat16"), ("cuda:1", "bfloat16")]),
    ],
)
def test_auto_is_half_precision_on_every_gpu_there_is(monkeypatch, gpus, bfloat16, expected):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bfloat16)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    _available_devices.cache_clear()
    assert [(device, _dtype("auto", device)) for device in tiny().places()] == expected
    assert [_dtype("float32", device) for device in tiny().places()] == ["float32"] * len(expected)
    _available_devices.cache_clear()


def test_no_device_is_named():
    with pytest.raises(FcaError, match=r"generator\.devices = none"):
        tiny(devices=[]).places()


@pytest.mark.slow
def test_a_device_that_is_not_there_is_named(model):
    with pytest.raises(FcaError, match=r"generator\.devices = cuda:9; allowed: a device of this machine"):
        tiny(model=str(model), devices=["cuda:9"]).draw(REQUEST)


@pytest.mark.slow
def test_two_devices_draw_what_one_draws(model, tmp_path):
    """Two processes, each with its own pipeline, on the only device that there surely is."""
    small = plan(classes={"n01": "cat"}, attributes={"size": NINE}, per_level=3)
    folders = [Folder(tmp_path / name) for name in ("one", "two")]
    for folder, devices in zip(folders, (["cpu"], ["cpu", "cpu"]), strict=True):
        done = generate(small, tiny(model=str(model), batch_size=4, devices=devices), folder)
        assert (done.drawn, done.left) == (9, 0)
    one, two = ([line["key"] for line in folder.journal.lines()] for folder in folders)
    assert one == two == [request.key for request in small.requests()]
    passes = [line["together"] for line in folders[1].journal.lines()]
    assert [passes.count(first) for first in dict.fromkeys(passes)] == [4, 4, 1]
    for line in folders[0].journal.lines():
        assert (folders[0].root / line["file"]).read_bytes() == (folders[1].root / line["file"]).read_bytes()


@pytest.mark.slow
def test_the_prompt_steps_and_size_change_the_image(model):
    made = tiny(model=str(model))
    image = made.draw(REQUEST).image
    assert (made.draw(replace(REQUEST, prompt="zzz")).image != image).any()
    assert (tiny(model=str(model), steps=3).draw(REQUEST).image != image).any()
    assert tiny(model=str(model), size=48).draw(REQUEST).image.shape == (48, 48, 3)


@pytest.mark.slow
def test_what_the_pipeline_flags_is_refused(model, monkeypatch):
    made = tiny(model=str(model))
    pipeline, _ = made._loaded()
    monkeypatch.setattr(pipeline, "run_safety_checker", lambda image, *_: (image, [True] + [False] * (len(image) - 1)))
    with pytest.raises(Refused, match="safety checker of tiny-diffusion"):
        made.draw(REQUEST)
    first, second = made.draw_batch([REQUEST, replace(REQUEST, seed=6)])
    assert isinstance(first, Refused)
    assert second.image.shape == (32, 32, 3)


@pytest.mark.slow
def test_numbers_that_overflow_are_an_error_and_no_black_image(model, monkeypatch):
    made = tiny(model=str(model))
    pipeline, _ = made._loaded()
    monkeypatch.setattr(pipeline.image_processor, "postprocess", lambda image, **_: np.full((1, 32, 32, 3), np.nan))
    with pytest.raises(FcaError, match=r"generator\.dtype = float32"):
        made.draw(REQUEST)


@pytest.mark.slow
def test_an_id_is_fetched_once_and_its_commit_is_a_fact(model, monkeypatch, tmp_path):
    from diffusers import DiffusionPipeline

    requests, commit = [], tmp_path / "0123abc"
    commit.symlink_to(model)
    monkeypatch.setattr(DiffusionPipeline, "download", lambda name, **how: requests.append((name, how)) or str(commit))
    made = tiny(model="owner/name", revision="v1")
    assert made.draw(REQUEST).facts["commit"] == "0123abc"
    made.draw(REQUEST)
    assert requests == [("owner/name", {"revision": "v1", "variant": None})]
    assert made.version().startswith("owner/name@v1, ")


@pytest.mark.slow
def test_what_is_no_pipeline_is_named(tmp_path):
    (tmp_path / "readme.txt").write_text("no model")
    for name in (str(tmp_path), "nobody/has-this"):
        with pytest.raises(FcaError, match=rf"generator\.model = {name}; allowed: the folder or the id"):
            tiny(model=name).draw(REQUEST)


@pytest.mark.parametrize(("change", "expected"), [({"size": 100}, r"generator\.size = 100")])
def test_a_size_or_dtype_that_cannot_be_is_named(change, expected):
    with pytest.raises(FcaError, match=expected):
        tiny(**change).draw(REQUEST)


def test_other_weights_under_the_same_name_are_another_version(tmp_path):
    versions = set()
    for content in ("a", "b", "a"):
        folder = tmp_path / str(len(list(tmp_path.iterdir()))) / "my-model"
        folder.mkdir(parents=True)
        (folder / "weights.safetensors").write_text(content)
        versions.add(tiny(model=str(folder)).version())
    assert len(versions) == 2


def test_no_prompt_is_an_error():
    with pytest.raises(FcaError, match="prompt of car/view/easy"):
        tiny().draw(replace(REQUEST, prompt=None))
