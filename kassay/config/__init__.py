"""The user's layer (Kconfig) and the structured layer (Hydra): from a profile's lines to one typed configuration."""
