"""What readers see of a run, in the same values for every front end."""
