"""`web_fetch`: pages of the web as data for the model."""
