"""From a plan to a folder of test images, with manifest and review page; the same call goes on where one ended."""

from fca.tasks.generate.folder import Folder
from fca.tasks.generate.money import Budget
from fca.tasks.generate.plan import Plan
from fca.tasks.generate.work import Done, generate

__all__ = ["Budget", "Done", "Folder", "Plan", "generate"]
