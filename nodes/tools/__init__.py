"""What the model may ask for: one file a family of tools, `tool.py` the shape they share, `catalog.py` the list."""
