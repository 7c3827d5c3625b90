"""The journal into the lake, and small files of the lake into large ones."""
