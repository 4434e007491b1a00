"""Messages and texts of an attacker."""
