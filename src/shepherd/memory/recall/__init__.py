"""What is put in front of a model unasked: quotes that matter to a question, and the standing wishes of its user."""
