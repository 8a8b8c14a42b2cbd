"""How a text becomes a decision without a network: encoder, student, entities, policy. One feature code for fitting and serving."""
