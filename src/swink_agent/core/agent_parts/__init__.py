"""What an agent is made of besides its loop: queues, subscribers, history, the claim to its one run."""
