"""The audit of every trained model: what readable heads are worth, and what essential heads look like."""
