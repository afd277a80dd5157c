"""The field's own ground: formats, recipes, caches, calibration and the oracle that checks them."""
