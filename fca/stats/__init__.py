"""Pure functions of arrays: numpy and scipy, no files, no torch. The floor that everybody may stand on."""
