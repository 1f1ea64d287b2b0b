import numpy as np
import pytest
import torch
from torch import nn

from fca.training import infer
from fca.training.devices import accelerator_for, device_name
from fca.training.infer import features_of, logits_of
from fca.types import FcaError, UnreadableImage
from tests.support.tiny import SIZE, classifier, examples


def test_logits_and_features_are_those_of_one_plain_forward_pass(monkeypatch):
    monkeypatch.setattr(infer, "batch_size_of", lambda size: 7)
    built, data = classifier(), examples(40)
    rows = np.random.default_rng(0).permutation(40)[:33]
    built.module.eval()
    with torch.no_grad():
        x = built.normalise(torch.from_numpy(data.pixels[rows]).permute(0, 3, 1, 2) / 255)
        features, logits = built.embed(x), built.module(x)
    np.testing.assert_allclose(logits_of(built, data.pixels, rows, "cpu"), logits.numpy(), atol=1e-5)  # float32 sums
    np.testing.assert_allclose(features_of(built, data.pixels, rows, "cpu"), features.numpy(), atol=1e-5)


def test_answers_are_float32_whatever_the_network_is():
    built, data = classifier(), examples(6)
    built.module.to(torch.bfloat16)
    normalise = built.normalise
    object.__setattr__(built, "normalise", lambda x: normalise(x).bfloat16())
    assert logits_of(built, data.pixels, data.rows, "cpu").dtype == np.float32


def test_dropout_and_batch_statistics_are_off():
    built, data = classifier(), examples(20)
    built.module.train()
    one = logits_of(built, data.pixels, data.rows, "cpu")
    np.testing.assert_allclose(one[:1], logits_of(built, data.pixels, data.rows[:1], "cpu"), atol=1e-6)


def test_an_encoder_without_weights_stays_on_the_cpu():
    class Mean(nn.Module):
        def forward(self, x):
            assert x.device.type == "cpu"
            return x.mean((2, 3))

    built, data = classifier(), examples(5)
    object.__setattr__(built, "module", nn.Identity())
    object.__setattr__(built, "embed", Mean())
    assert features_of(built, data.pixels, data.rows).shape == (5, 3)


def test_an_unreadable_image_is_named_and_no_image_is_no_answer():
    class Broken:
        def __getitem__(self, rows):
            if 3 in rows:
                raise UnreadableImage("cat/3.png is truncated")
            return np.zeros((len(rows), SIZE, SIZE, 3), np.uint8)

    assert logits_of(classifier(), Broken(), np.array([1, 2])).shape == (2, 3)
    with pytest.raises(UnreadableImage, match=r"cat/3\.png"):
        logits_of(classifier(), Broken(), np.arange(5))
    with pytest.raises(ValueError, match="rows is empty"):
        logits_of(classifier(), Broken(), np.arange(0))


def test_the_device_has_a_name():
    threads = torch.get_num_threads()
    assert device_name("cpu").endswith(" 1 thread" if threads == 1 else f" {threads} threads")


def test_what_has_no_parameters_stays_on_the_cpu():
    assert accelerator_for(torch.nn.Identity(), "gpu") == "cpu"
    assert accelerator_for(torch.nn.Linear(1, 1), "gpu") == "gpu"


@pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused():
    data = examples(6)
    with pytest.raises(FcaError, match=r"machine\.accelerator = gpu; allowed: auto or cpu"):
        logits_of(classifier(), data.pixels, data.rows, "gpu")
