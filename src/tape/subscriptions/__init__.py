"""Declared subscriptions: what a document says, its life, and the listeners that fetch."""
