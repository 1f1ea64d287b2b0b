"""Reliance on spurious cues."""
