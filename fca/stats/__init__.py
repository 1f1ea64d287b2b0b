"""Pure functions of arrays: numpy and scipy, no files, no torch. Every other part of fca may import it."""
