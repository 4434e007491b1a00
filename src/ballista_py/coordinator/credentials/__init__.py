"""Short-lived credentials for the files of tables that are scanned where they lie: who gives and who renews them."""
