"""A recorded session, played again offline, and the first difference."""
