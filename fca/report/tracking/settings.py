"""Which settings W&B reads: those of the environment and of the user's home, never of the current folder."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def ignore_local_settings() -> None:
    """Keep W&B from reading `wandb/settings` of the current folder in this process; call it before any of W&B's.

    That file may have come with a folder of images or a store, and it may name the server that is sent the API key.
    """
    from wandb.sdk.lib.settings_file import SettingsFiles
    from wandb.sdk.wandb_settings import Settings

    def user_settings_only(settings: Settings) -> SettingsFiles:
        file = settings.settings_system
        return SettingsFiles(global_settings=Path(file) if file else None, local_settings=Path(os.devnull))

    Settings.read_system_settings = user_settings_only  # type: ignore[assignment, method-assign]  # W&B has no switch for it
