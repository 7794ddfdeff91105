"""What approximations miss: attention, norms, logit attribution and gradients against the removal of every head."""
