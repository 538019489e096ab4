"""How large each part of a warehouse should be: pure policies, and the scaler that asks them."""
