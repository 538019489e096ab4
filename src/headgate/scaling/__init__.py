"""How large each part of a warehouse should be: pure policies, and a simulator that runs them."""
