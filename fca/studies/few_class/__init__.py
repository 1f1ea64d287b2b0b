"""Few classes: how accurate are sub-models and full models on few classes, and does similarity predict it?"""
