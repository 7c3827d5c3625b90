"""Messages of any source into the journal; what cannot go there is kept aside with the reason."""
