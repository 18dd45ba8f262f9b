"""Messages in, events out: one interface over our own engine and (later) the cloud providers."""
