"""The standard agent: model, prompt, context and sandbox."""
