"""OpenAI's Responses protocol, the server half."""
