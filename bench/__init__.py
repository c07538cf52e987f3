"""Benchmarks of the engine, each a ratio of two sides that run interleaved; see ``bench/README.md``."""
