"""The weights of models: their sources and their store on this machine."""
