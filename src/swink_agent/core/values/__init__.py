"""The base of all values, facts about models, and names for type hints that load their types on use."""
