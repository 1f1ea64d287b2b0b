"""What `fca recommend` imports."""

import pytest

from tests.studies.recommend.support.coloured_folder import folder_of_colours
from tests.support.imported_modules import command, modules_after


@pytest.mark.slow
def test_a_recommendation_imports_no_other_study(tmp_path):
    photos = folder_of_colours(tmp_path / "photos")
    words = [str(photos), "candidates=[test_resnet]", "minutes=0.01", "logger=none", "packages=[]", "screen=null"]
    studies = {
        name.split(".")[2] for name in modules_after(command("recommend", *words), tmp_path) if "studies." in name
    }
    assert studies == {"recommend"}
