"""Failure search: where a classifier fails, why, and how few images it takes to know; and their figures."""
