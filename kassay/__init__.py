"""kassay: declarative, evidence-grade experiments on KV-cache quantization and decode saturation."""

__version__ = "0.1.0"
