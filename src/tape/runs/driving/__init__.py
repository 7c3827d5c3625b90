"""Driving a run: replay what its journal holds, call its app, and write down each new step."""
