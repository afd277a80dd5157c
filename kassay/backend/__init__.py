"""Backends run a model with a recipe's cache: the reference one on transformers' own classes."""
