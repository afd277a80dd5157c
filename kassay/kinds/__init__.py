"""The record kinds, one module per stage that writes them; every field says its unit and range."""
