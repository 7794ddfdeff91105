"""The papers item by item: which claim covers each figure, table and theorem, with its verdict."""
