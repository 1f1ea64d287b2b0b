"""The doors: command lines in, nouns out. Nobody else imports Hydra or OmegaConf."""
