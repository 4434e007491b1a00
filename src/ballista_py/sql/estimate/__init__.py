"""How many rows and bytes: estimates."""
