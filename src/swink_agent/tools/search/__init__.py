"""The search tool, its two engines, and the walk over the files that they examine."""
