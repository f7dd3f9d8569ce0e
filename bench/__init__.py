"""Benchmarks: `python -m bench` prints what the library costs, as ratios against a bare loop in the same run."""
