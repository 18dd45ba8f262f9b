"""JSON Schemas of request bodies, for readers of `/docs`. Documentation only: the codecs decide what is accepted."""
