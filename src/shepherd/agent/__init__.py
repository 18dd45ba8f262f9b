"""Conversations: who said what so far, and the next turn over any back end."""
