"""The search tool, its two engines, and what of a tree they look at."""
