"""What a model can call: tools that Shepherd carries out itself."""
