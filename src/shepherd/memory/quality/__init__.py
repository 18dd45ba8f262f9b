"""How good the retrieval is: public test sets and the usual figures, through the real path."""
