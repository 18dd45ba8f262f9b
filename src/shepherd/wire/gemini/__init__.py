"""Gemini's protocol, its client half: `generateContent`."""
