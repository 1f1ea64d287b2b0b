"""The command line: configurations are composed, checked and run. Nobody else imports Hydra or OmegaConf."""
