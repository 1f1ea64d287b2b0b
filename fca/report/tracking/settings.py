"""Whose settings W&B takes: those of the environment and of the user's own file."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def ignore_local_settings() -> None:
    """From now on W&B does not read `wandb/settings` of the current folder in this process; call it before W&B's.

    That file may have come with a folder of images or a store, and it may name the server that is sent the API key.
    """
    from wandb.sdk.lib.settings_file import SettingsFiles
    from wandb.sdk.wandb_settings import Settings

    def of_user(settings: Settings) -> SettingsFiles:
        file = settings.settings_system
        return SettingsFiles(global_settings=Path(file) if file else None, local_settings=Path(os.devnull))

    Settings.read_system_settings = of_user  # type: ignore[assignment, method-assign]  # W&B has no switch for it
