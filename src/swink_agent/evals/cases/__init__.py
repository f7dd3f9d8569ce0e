"""Cases: the tasks of an agent, and the files that contain them."""
