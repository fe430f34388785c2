"""A decoder-only Transformer of Llama's architecture, for serving and for training."""
