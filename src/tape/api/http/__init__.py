"""The HTTP door: one module per noun, each with the messages it takes and gives."""
