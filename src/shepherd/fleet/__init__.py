"""Models that come and go: what could be loaded, what is loaded and how, and which one a request is for."""
