"""The base of all values, checks of what applications give, facts about models, and type hints loaded on use."""
