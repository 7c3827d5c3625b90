"""The systems that entries are published to, one module each; `by_target` finds the one."""
