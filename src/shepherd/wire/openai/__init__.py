"""OpenAI's protocols but for Responses: chat, completions, embeddings, and the shapes that they share."""
