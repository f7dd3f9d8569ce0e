"""Network by name: which hosts a command may reach, and the proxy through which it reaches them."""
