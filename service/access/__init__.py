"""Who may come in, and how much of it: keys, tokens, rates and quotas. What a caller may reach is the gate's to say."""
