"""Cases: what is asked of an agent, and the files that say it."""
