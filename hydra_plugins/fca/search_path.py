"""Hydra looks for options also in the folder `conf` of every package that is listed under `plugins`."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from fca.cli.options import plugin_folders


class FcaSearchPath(SearchPathPlugin):
    """The folders behind conf/: of two options with one name that of conf/ counts."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the folders of packages of one's own."""
        for folder in plugin_folders():
            search_path.append("plugins", f"file://{folder}")
