"""What each agent's answers to the golden queries are checked against: computed anew from the data, by another route than its own."""
