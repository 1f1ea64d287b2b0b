"""A training on several devices: on a CPU they are processes, which all import this module."""

from dataclasses import replace

import torch
from torch import nn

from fca.training.loop import TrainingPlace, fit
from tests.support.tiny import classifier, examples, recipe


def bare():
    """Without batch norm and dropout, whose processes would see other images and draw other numbers."""
    built = classifier()
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    head = nn.Linear(24, 3)
    return replace(built, module=nn.Sequential(body, head), embed=body, head=head)


def train(folder, number, built=None, changes=None, **place):
    built = built or bare()
    where = TrainingPlace(folder, accelerator="cpu", devices=number, checkpoint_s=0.0, **place)
    return built, fit(built, examples(61), examples(31, seed=1), recipe(**(changes or {})), 0, where)
