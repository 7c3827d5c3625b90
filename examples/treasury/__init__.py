"""A treasury and the counterparties it deals with: a bank, a broker and a ledger, all pretended."""
