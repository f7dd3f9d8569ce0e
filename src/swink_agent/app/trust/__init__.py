"""What a folder and installed packages may say, and whether the user trusts them."""
