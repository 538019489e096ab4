"""The one currency: weighted changes, job ids and the columns that carry them."""
