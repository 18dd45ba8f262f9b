"""The HTTP server: paths to codecs, codecs to back ends, events to the wire."""
